"""Moments and spans as options have them."""

from __future__ import annotations

import click

from effectonce.views import times


def span_s(text: str) -> float:
    """An option's `30m` or `2h`, in seconds."""
    try:
        return times.span_s(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def since_when(text: str) -> float:
    """An option's `2h` (ago) or date: seconds ago if negative, otherwise seconds since 1970."""
    try:
        return times.since_when(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
