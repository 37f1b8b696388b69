"""From signals to a verdict: which row of the tables decides, and what the server's own word
adds to it.

Precedence: what the server says about retrying, then the error code or type, the class, the
status, the reason why a model stopped, the errno; then the same for what the error wraps; then
words; then unknown. A row that is only a fallback waits for a better one further on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from effectonce._core.classification.retry_after import from_headers, number, spoken
from effectonce._core.classification.signals import SOON_S, Signals, chain, read
from effectonce._core.classification.tables import (
    BY_CLASS,
    BY_CODE,
    BY_ERRNO,
    BY_FINISH,
    BY_STATUS,
    OF_PACKAGE,
    TABLES,
    TEXTS,
    Entry,
)
from effectonce._core.classification.tables._row import OPEN, Table, TableRow
from effectonce._core.classification.verdicts import SURE, UNKNOWN, Bucket, Certainty, Verdict

# A code says what these leave open, from any vendor. Under others that leave the outcome
# unknown, such as 500, the vendor must be known.
CLARIFIED = (409, 503)
ASK_LATER = (Bucket.RATE_LIMIT, Bucket.OVERLOADED, Bucket.QUOTA, Bucket.UNKNOWN)


class Match(Struct, frozen=True):
    table: Table
    row: TableRow
    name: str  # the signal that was seen
    signals: Signals
    trusted: bool


def judge(thing: Any, now: float | None) -> Verdict:
    """What *thing* means, by the tables."""
    seen = [(read(link.thing), link.trusted) for link in chain(thing)]
    match = _decide(seen)
    delay_s = delay_asked([signals for signals, _ in seen], now)
    verdict = UNKNOWN if match is None else _with_certainty(match, seen)
    if match is None or not match.row.settled:
        verdict = _refined(verdict, "\n".join(signals.text for signals, _ in seen).lower(), delay_s)
    if delay_s is None and verdict.bucket in ASK_LATER:
        delay_s = next(
            (d for d in (spoken(signals.text) for signals, _ in seen) if d is not None), None
        )
    if delay_s is not None:
        verdict = verdict.but(retry_after_s=delay_s)
    if verdict.bucket is Bucket.RATE_LIMIT and delay_s is not None and delay_s > SOON_S:
        why = "it asks to wait so long that it is a quota, whatever it is called"
        verdict = Verdict(Bucket.QUOTA, verdict.certainty, why, delay_s, matched=verdict.matched)
    return word_from_below(
        _server_word(verdict, [signals for signals, _ in seen]), [signals for signals, _ in seen]
    )


def _decide(seen: list[tuple[Signals, bool]]) -> Match | None:
    fallback = None
    for signals, trusted in seen:
        for table, row, name in _candidates(signals):
            match = Match(table, row, name, signals, trusted)
            if not row.weak:
                return match
            fallback = fallback or match
    return fallback


def _candidates(signals: Signals) -> Iterator[tuple[Table, TableRow, str]]:
    """The rows that this error could be, best signal first."""
    theirs = tables_of(signals)
    for code in signals.codes:
        for spelling in (
            code,
            code[:1].upper() + code[1:],
            f"{code[:2]}xxx" if len(code) == 5 else "",
        ):
            known = [
                entry
                for entry in BY_CODE.get(spelling, ())
                if entry[0] in theirs or not entry[0].only_theirs
            ]
            if known:
                yield *_whose(known, theirs), code
                break
    for name in signals.classes:
        if name in BY_CLASS:
            yield *BY_CLASS[name], name
            break  # a base says less than the class itself
    if signals.status is not None:
        asked = "+retry-after" if from_headers(signals.headers, 0.0) is not None else ""
        spellings = (f"{signals.status}{asked}", str(signals.status), f"{signals.status // 100}xx")
        meant = next(BY_STATUS[spelling] for spelling in spellings if spelling in BY_STATUS)
        if signals.status >= 300 or not signals.finish:
            # HTTP's own meaning is the last one
            yield *_whose(meant[::-1], theirs), str(signals.status)
    for reason in signals.finish:
        if reason in BY_FINISH:
            yield *_whose(BY_FINISH[reason], theirs), reason
    if signals.finish:
        yield *BY_STATUS["2xx"][0], signals.finish[0]
    if signals.errno in BY_ERRNO:
        yield *BY_ERRNO[signals.errno], str(signals.errno)


def tables_of(signals: Signals) -> tuple[Table, ...]:
    """Whose error is this? By its classes, else by the headers or the host of the response."""
    owned = [
        OF_PACKAGE[p]
        for p in dict.fromkeys(name.partition(".")[0] for name in signals.classes)
        if p in OF_PACKAGE
    ]
    hinted = [
        table
        for table in TABLES
        if any(name.startswith(prefix) for prefix in table.headers for name in signals.headers)
        or any(signals.host == host or signals.host.endswith(f".{host}") for host in table.hosts)
    ]
    return (*owned, *hinted)


def _whose(entries: Sequence[Entry], theirs: tuple[Table, ...]) -> Entry:
    return next((entry for table in theirs for entry in entries if entry[0] is table), entries[0])


def _with_certainty(match: Match, seen: list[tuple[Signals, bool]]) -> Verdict:
    """The row's verdict, as certain as the way it came allows."""
    verdict, signals = match.row.verdict, match.signals
    inside = seen[next(at for at, (each, _) in enumerate(seen, start=1) if each is signals) :]
    matched = f"{match.table.name}: {match.row.signal} {match.name}"
    if verdict.certainty not in SURE:
        return verdict.but(matched=matched)
    if not match.trusted:
        return verdict.but(
            certainty=Certainty.AMBIGUOUS,
            matched=matched,
            why=f"while this was handled, another error came: {verdict.why}",
        )
    if signals.in_stream and verdict.certainty is Certainty.REJECTED:
        return verdict.but(
            certainty=Certainty.AMBIGUOUS,
            matched=matched,
            why=f"{verdict.why}; part of the answer was out already",
        )
    if match.row.signal == "code" and not _answered(match):
        return verdict.but(certainty=Certainty.AMBIGUOUS, matched=matched)
    if signals.status is not None and _lost(inside):
        return verdict.but(
            certainty=Certainty.AMBIGUOUS,
            matched=matched,
            why=f"{verdict.why}, reported by a layer that got no answer",
        )
    return verdict.but(matched=matched)


def _lost(inside: list[tuple[Signals, bool]]) -> bool:
    """Was it raised from a request without an answer? Then its status is not the server's."""
    match = _decide([(signals, trusted) for signals, trusted in inside if trusted])
    if match is None or match.row.signal not in ("class", "errno"):
        return False
    return match.row.verdict.bucket is Bucket.NO_ANSWER and match.row.verdict.certainty not in SURE


def _answered(match: Match) -> bool:
    """Does the code answer the request? Over HTTP, a status or the exception's class tells."""
    signals = match.signals
    theirs = match.table in tables_of(signals)
    if signals.status is not None:
        clear = theirs or signals.status in CLARIFIED or _of_http(signals.status).certainty in SURE
        return signals.status >= 400 and clear
    if not theirs:
        return False
    refusals = (BY_CLASS[name][1].verdict.certainty for name in signals.classes if name in BY_CLASS)
    return not match.table.over_http or next(refusals, None) is Certainty.REJECTED


def _of_http(status: int) -> Verdict:
    """What HTTP itself says about a status."""
    known = BY_STATUS.get(str(status)) or BY_STATUS[f"{status // 100}xx"]
    return known[-1][1].verdict


def _refined(verdict: Verdict, text: str, delay_s: float | None) -> Verdict:
    """What the message's words add: a better name for what was open, and never any certainty."""
    for phrase, (table, row) in TEXTS:
        bucket = row.verdict.bucket
        is_open = verdict.bucket is Bucket.UNKNOWN or verdict.bucket in OPEN.get(bucket, ())
        if is_open and phrase in text and not (row.weak and delay_s is not None):
            # A message that is too large may be the answer: then it was done.
            certainty = Certainty.AMBIGUOUS if bucket is Bucket.SCHEMA else verdict.certainty
            scope = row.verdict.scope
            return Verdict(
                bucket,
                certainty,
                row.verdict.why,
                verdict.retry_after_s,
                scope,
                matched=f"{table.name}: text {phrase!r}",
            )
    return verdict


def delay_asked(seen: list[Signals], now: float | None) -> float | None:
    for signals in seen:
        delay_s = from_headers(signals.headers, now)
        delay_s = signals.delay_s if delay_s is None else delay_s
        if delay_s is not None:
            return delay_s
    return None


def _server_word(verdict: Verdict, seen: list[Signals]) -> Verdict:
    """The server's word on retries. It may always forbid them, but allow them only with a key."""
    if any(signals.never for signals in seen):
        verdict = verdict.but(retry=False)
    for signals in seen:
        for name in ("x-should-retry", "stripe-should-retry", "grpc-retry-pushback-ms"):
            value = signals.headers.get(name, "").lower()
            if value:
                pushback_ms = number(value)
                allowed = (
                    value == "true"
                    if name != "grpc-retry-pushback-ms"
                    else pushback_ms is not None and pushback_ms >= 0
                )
                return _allowed(verdict, f"{name}: {value}", allowed=allowed)
    return verdict


def word_from_below(verdict: Verdict, seen: list[Signals]) -> Verdict:
    """What a layer of ours below says: it has seen more attempts, and only takes certainty away."""
    unsure = any(signals.unsure for signals in seen) and verdict.certainty in SURE
    if any(signals.gave_up for signals in seen):
        return verdict.exhausted(unsure=unsure).but(
            why=f"{verdict.why}; a layer inside has given up"
        )
    if unsure:
        return verdict.but(
            certainty=Certainty.AMBIGUOUS, why=f"{verdict.why}; an earlier attempt may have landed"
        )
    return verdict


def _allowed(verdict: Verdict, header: str, *, allowed: bool) -> Verdict:
    matched = f"{verdict.matched}; header {header}"
    if not allowed:
        return verdict.but(retry=False, matched=matched)
    if verdict.retryable or verdict.bucket is Bucket.OK:
        return verdict.but(matched=matched)
    certainty = Certainty.AMBIGUOUS if verdict.certainty in SURE else verdict.certainty
    return verdict.but(
        certainty=certainty,
        retry=True,
        matched=matched,
        why=f"{verdict.why}; the server says to try again",
    )
