"""Events as log lines: the standard library's logging, and structlog."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from effectonce._text import on_one_line
from effectonce.errors import ContractViolation
from effectonce.observe.events import EVENTS, Event, fields

LOGGER = "effectonce.events"
_SEEN = ("in_doubt", "store_error", "fenced_out", "conflict", "kept", "dead_letter")
_LOGGED = (
    "settled", "failed", "expired", "latched", "out_of_order", "in_flight", "retry_scheduled",
    "retry_suppressed", "breaker", "swept", "redriven", "discarded", "cancelled", "workflow",
    "taken_over", "paused", "approval_needed", "approval", "limit_reached",
)  # fmt: skip
LEVELS: dict[str, int] = (
    dict.fromkeys(EVENTS, logging.DEBUG)
    | dict.fromkeys(_LOGGED, logging.INFO)
    | dict.fromkeys(_SEEN, logging.WARNING)
)


class Logs:
    """An observer that logs: `Guard(..., observers=[Logs()])`.

    What a person should see is a warning: a doubt, a conflict, a store that does not answer.
    What ordinary calls do is debug. Every field of the event is in `extra`, so a JSON formatter
    shows them. *levels* says otherwise for some events. Characters that a terminal obeys, or
    that begin another line, are replaced: a log line is one line.
    """

    def __init__(
        self, logger: logging.Logger | None = None, *, levels: Mapping[str, int] | None = None
    ) -> None:
        self._logger = logging.getLogger(LOGGER) if logger is None else logger
        self._levels = _levels(levels)

    def __call__(self, event: Event) -> None:
        level = self._levels.get(event.name, logging.INFO)
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", on_one_line(_line(event)), extra=_fields(event))


class StructLog:
    """The same for structlog: `Guard(..., observers=[StructLog()])`. The event's name is the
    log's event, its fields are bound.
    """

    def __init__(self, logger: Any = None, *, levels: Mapping[str, int] | None = None) -> None:
        if logger is None:
            try:
                from structlog import get_logger
            except ImportError as missing:
                raise ImportError(
                    "StructLog needs structlog. Install it: pip install structlog"
                ) from missing
            logger = get_logger(LOGGER)
        self._logger, self._levels = logger, _levels(levels)

    def __call__(self, event: Event) -> None:
        bound = _fields(event)
        self._logger.log(self._levels.get(event.name, logging.INFO), bound.pop("event"), **bound)


def _fields(event: Event) -> dict[str, Any]:
    """The fields of an event. A formatter may write them as they are: none starts a new line."""
    return {
        name: on_one_line(value) if isinstance(value, str) else value
        for name, value in fields(event).items()
    }


def _levels(levels: Mapping[str, int] | None) -> dict[str, int]:
    unknown = sorted(set(levels or ()) - set(EVENTS))
    if unknown:
        raise ContractViolation(
            f"levels names {', '.join(unknown)}, which no event is called: choose among"
            f" {', '.join(EVENTS)}"
        )
    return LEVELS | dict(levels or {})


def _line(event: Event) -> str:
    """One line for people: what happened to what, and why."""
    effect = "" if event.effect is None or not event.effect.key else event.effect.reference
    what = " ".join(part for part in (event.tool or event.dependency, effect) if part)
    by = event.by and f"by {event.by}"
    said = (event.outcome, event.operation, event.error, event.reason, by)
    more = ", ".join(str(part) for part in said if part)
    return f"{event.name}" + f" {what}" * bool(what) + f" ({more})" * bool(more)
