"""Control: a retry loop that protects nothing. It must have duplicates, or the run is void."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncebench.kit import Says, Setup

NAME = "naive retry"
KIND = "control"
REQUIRES: tuple[str, ...] = ()
README = "what agents do today"
OFFERS = ("transaction", "approval")
LACKS: dict[str, str] = {}


def open(setup: Setup) -> Callable[..., Any]:
    return lambda tool: tool


def said(error: Exception) -> Says:
    return "raised"
