"""The clients that a tool names: do their own retries multiply its attempts?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from effectonce._log import LOG
from effectonce.policy import Contract
from effectonce.stores.base import Finding


def amplified(contract: Contract, clients: Sequence[Any]) -> Finding | None:
    """What its clients' own retries make of a tool's attempts."""
    if not clients:
        return None
    from effectonce.retries.clients import amplification  # noqa: PLC0415  # few tools name them

    found = amplification(contract.retry.attempts, *clients)
    if found is None:
        return None
    LOG.warning("%s: %s. %s", contract.name, found.found, found.advice)
    return Finding(f"retries of {contract.name}", found.found, found.advice)
