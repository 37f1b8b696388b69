from __future__ import annotations

from typing import Any

from oncebench import kit


def pay(order: str, amount: int, note: str = "") -> Any:
    """Pay an amount for an order."""
    return kit.body("/pay", order=order, amount=amount, note=note)
