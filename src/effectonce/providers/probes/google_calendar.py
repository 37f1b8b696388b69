"""Google Calendar: an event has an id of yours, and is read by it. A deleted one is still there.

body={"id": google_calendar.event_id(), ...}                         # in the tool
book.probe(google_calendar.event(service))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from effectonce.effect import current_effect
from effectonce.providers.probes._asking import Probe, asking

ALPHABET = "0123456789abcdefghijklmnopqrstuv"
ABSENT = 404  # what was there and is deleted is answered with 410


def event_id() -> str:
    """The id of this effect's event: letters and digits that the calendar takes."""
    return current_effect().key_as(max=64, alphabet=ALPHABET)


def event(
    service: Any,
    calendar: Callable[..., str] = lambda *_, **__: "primary",
    *,
    result: Callable[[Any], Any] = lambda found: found["id"],
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its id. *service* is `build("calendar", "v3", ...)`; *calendar* is called like the
    tool, and returns the id of the calendar.
    """

    def search(*args: Any, **kwargs: Any) -> Iterator[Any]:
        asked = service.events().get(calendarId=calendar(*args, **kwargs), eventId=event_id())
        try:
            yield asked.execute()
        except Exception as error:  # only the answer that there is none is one
            if getattr(getattr(error, "resp", None), "status", None) != ABSENT:
                raise

    return asking("google.calendar", search, result, proof_after_s)
