"""The reference pages are what the code has."""

import logging
import re
from pathlib import Path

from msgspec.structs import fields

from effectonce.observe import EVENTS, METRICS, OUTCOMES, Event
from effectonce.observe.logs import LEVELS
from effectonce.observe.otel import MARKS

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference"


def rows(page, mark):
    text = re.search(
        rf"<!-- {mark} -->\n(.*?)<!-- /{mark} -->", (REFERENCE / page).read_text(), re.DOTALL
    )[1]
    return text.splitlines()[2:]


def test_every_event_is_on_its_page_as_the_code_has_it():
    assert rows("events.md", "events") == [
        f"| `{name}` | {said} | {logging.getLevelName(LEVELS[name]).lower()} |"
        for name, said in EVENTS.items()
    ]


def test_every_outcome_is_on_its_page_as_the_code_has_it():
    assert rows("events.md", "outcomes") == [
        f"| `{name}` | {said} |" for name, said in OUTCOMES.items()
    ]


def test_every_field_of_an_event_is_on_its_page():
    section = (
        (REFERENCE / "events.md")
        .read_text()
        .partition("## Fields of an event")[2]
        .partition("\n## ")[0]
    )
    shown = {
        name
        for cell in re.findall(r"^\| (`.+?) \|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", cell)
    }
    assert shown == {field.name for field in fields(Event)}


def labels(metric):
    return ", ".join(f"`{label}`" for label in metric.labels) or "none"


def test_every_metric_is_on_its_page_as_the_code_has_it():
    assert rows("metrics.md", "metrics") == [
        f"| `{m.name}` | `{m.prometheus_name}` | {m.kind}, `{m.unit}` | {labels(m)} | {m.help} |"
        for m in METRICS.values()
    ]


def test_every_event_of_a_span_is_on_its_page():
    page = (REFERENCE / "metrics.md").read_text()
    assert set(re.findall(r"`effectonce\.(\w+)`", page.partition("Events on a span")[2])) == MARKS
