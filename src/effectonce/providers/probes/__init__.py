"""How to ask a provider whether an effect happened: one module for each, which takes your own
client. No SDK is imported.

A recipe is a probe, registered as `tool.probe(github.comment(...))`. It finds the effect by a
mark that the tool left there, which comes from the effect's key, so that both agree. What it
answers:

- found once: `Found`, with what `result` makes of it;
- found twice or more, or the provider could not be asked: `CannotTell`;
- not found: `CannotTell`, unless the provider's page says that this is proof, or you do
  (`proof_after_s`), and the doubt is old enough: then `NotFound`.
"""

from __future__ import annotations

from effectonce.providers.probes._asking import in_thread

__all__ = ["in_thread"]
