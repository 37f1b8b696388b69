"""What the tools of an app rest on that a provider does not publish, or may have changed since.

How a provider's window compares with that of the tool is said by the contract itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from effectonce import Capability, Finding, Guard
from effectonce._text import span
from effectonce._tools.provider_terms import published_window_s
from effectonce.providers import outdated, provider
from effectonce.providers._model import OLD_AFTER
from effectonce.views.providers import FIELDS
from effectonce.views.tools import tools_of


def provider_findings(guard: Guard, today: date) -> Iterator[Finding]:
    """A finding for each window that is not published, and for each provider whose pages were
    read long ago.
    """
    used: dict[str, list[str]] = {}
    for name, tool in tools_of(guard).items():
        contract = tool.contract
        if not contract.provider:
            continue
        used.setdefault(contract.provider, []).append(name)
        keyed = contract.downstream.capability is Capability.KEY
        if keyed and published_window_s(provider(contract.provider)) is None:
            honoured = span(contract.downstream.window_s)
            yield Finding(
                f"tool {name}",
                f"how long {contract.provider} honours a key is not published: what has no answer"
                f" after {honoured} goes in doubt",
                "If you know that it is longer: downstream=Downstream.key(window=...).",
            )
    for name, tools in used.items():
        old = [FIELDS[field] for field in outdated(provider(name), today)]
        if old:
            yield Finding(
                f"provider {name}",
                f"what is known about its {', '.join(old)} was read more than {OLD_AFTER.days} days"
                f" ago, and {', '.join(tools)} rest{'s' if len(tools) == 1 else ''} on it",
                f"Look at the pages: effectonce provider show {name}",
            )
