"""What the APIs of others do with a repeated request, as data: one file for each, and every fact
has its source and its date.

Nothing is read before the first use, and no SDK is imported.
"""

from __future__ import annotations

from effectonce.providers._model import Fact, Provider
from effectonce.providers._read import outdated, provider, providers

__all__ = ["Fact", "Provider", "outdated", "provider", "providers"]
