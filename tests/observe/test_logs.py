"""Events as log lines."""

import logging

import pytest
import structlog

from effectonce import Guard, InDoubt
from effectonce.observe import EVENTS, Logs, StructLog
from effectonce.observe.logs import LEVELS
from effectonce.stores.memory import MemoryStore
from tests.observe.helpers import QUICK


def doubt(*observers):
    """A call that goes in doubt."""
    guard = Guard(MemoryStore(), observers=observers)

    @guard.tool(kind="write", retry=QUICK)
    def pay(card: str):
        raise TimeoutError(card)

    with guard.step("chat", "pay"), pytest.raises(InDoubt) as raised:
        pay("card-number")
    return raised.value.effect


def test_a_doubt_is_a_warning_and_what_calls_do_is_debug(caplog):
    caplog.set_level(logging.DEBUG, "effectonce.events")
    effect = doubt(Logs())

    lines = {
        record.event: record for record in caplog.records if record.name == "effectonce.events"
    }

    assert lines["in_doubt"].levelno == logging.WARNING
    assert lines["attempt"].levelno == logging.DEBUG
    assert (lines["in_doubt"].tool, lines["in_doubt"].effect, lines["in_doubt"].error) == (
        "pay",
        effect.reference,
        "TimeoutError",
    )
    assert (
        lines["in_doubt"]
        .getMessage()
        .startswith(f"in_doubt pay {effect.reference} (TimeoutError, ")
    )
    assert effect.key not in caplog.text
    assert "card-number" not in caplog.text


def test_what_is_not_enabled_costs_no_line(caplog):
    caplog.set_level(logging.WARNING, "effectonce.events")
    doubt(Logs())
    assert [record.event for record in caplog.records] == ["in_doubt", "dead_letter"]


def test_a_level_and_a_logger_of_your_own(caplog):
    mine = logging.getLogger("mine")
    caplog.set_level(logging.ERROR)
    doubt(Logs(mine, levels={"in_doubt": logging.CRITICAL}))
    assert [(record.name, record.event, record.levelno) for record in caplog.records] == [
        ("mine", "in_doubt", logging.CRITICAL)
    ]


def test_structlog_gets_the_same_as_fields():
    with structlog.testing.capture_logs() as lines:
        effect = doubt(StructLog())
    (line,) = [line for line in lines if line["event"] == "in_doubt"]
    assert line["log_level"] == "warning"
    assert (line["tool"], line["effect"], line["scope"]) == ("pay", effect.reference, "chat")
    assert "card-number" not in str(lines)


def test_every_event_has_a_level():
    assert LEVELS.keys() == EVENTS.keys()


def test_without_structlog_it_says_how_to_get_it(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "structlog", None)
    with pytest.raises(ImportError, match="pip install structlog"):
        StructLog()
