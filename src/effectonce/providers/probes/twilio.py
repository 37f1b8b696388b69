"""Twilio: look for a message with this To, From and text that was made since. Twilio takes no id of
yours, so two effects that send one text to one number at the same time are not distinguished. A
message that was made later is left to you: it may be that of another effect.

    sms.probe(twilio.message(client, lambda to, text: {"to": to, "from_": OURS, "body": text}))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from effectonce.effect import current_effect
from effectonce.providers.probes._asking import Probe, Unclear, asking, bounded, since

LATE_S = 300.0  # after the doubt began, it may still have been made
TICK_S = 2.0  # a message has whole seconds; two clocks may differ by one more


def message(
    client: Any,
    where: Callable[..., dict[str, str]],
    *,
    result: Callable[[Any], Any] = lambda found: found.sid,
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its addresses, its text and its time. *where* is called like the tool, and returns
    what it gave to `client.messages.create`.
    """

    def search(*args: Any, **kwargs: Any) -> Iterator[Any]:
        sent = where(*args, **kwargs)
        since()  # raises if that is not known
        effect = current_effect()
        first = datetime.fromtimestamp(effect.sent_at, UTC) - timedelta(seconds=TICK_S)
        last = datetime.now(UTC) - timedelta(seconds=effect.in_doubt_s - LATE_S)
        listed, seen, later = client.messages.stream(to=sent["to"], from_=sent["from_"]), False, ""
        for found in bounded(listed):
            made_at = found.date_created or found.date_sent
            if found.body != sent["body"] or (made_at is not None and made_at < first):
                continue
            if made_at is not None and made_at > last:
                later = found.sid
                continue
            seen = True
            yield found
        if later and not seen:
            raise Unclear(f"{later} was made later, and may be another effect's")

    return asking("twilio", search, result, proof_after_s)
