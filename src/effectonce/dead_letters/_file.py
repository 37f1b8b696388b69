"""Dead letters as a file: one line of JSON each, exact, and each with a digest, so that a torn
or changed line is noticed.

    {"format": "effectonce dead letter", "version": 1, "digest": "<sha256>", "letter": {…}}

What was confidential in a sealed store is in the clear here: the file is for its owner alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import IO, Any

import msgspec
import orjson
from msgspec import Struct

from effectonce._core.codec import is_closed
from effectonce._core.guarantees import Terms
from effectonce._core.record import Evidence, Record, Request, State
from effectonce._text import harmless_json
from effectonce.errors import ContractViolation
from effectonce.stores._rows import write_terms

FORMAT, VERSION = "effectonce dead letter", 1
TIME_MAX = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
LINE_MAX = 64 * 1024 * 1024  # bytes; what is longer is cut off, and so no letter


# of a request, and of its record: what is carried as it is
_ASKED = ("key", "fingerprint", "tenant", "scope", "step", "arguments", "latch", "after")
_KNOWN = ("state", "sends", "created_at", "first_dispatch_at", "reason", "evidence")


class BadLine(ValueError):
    """This line is no dead letter."""


class LineProblem(Struct, frozen=True):
    """A line of a file that was not imported, and why."""

    line: int  # from 1
    why: str


class Imported(Struct, frozen=True):
    """What came of a file. Every line is counted once; empty ones are none."""

    imported: int
    known: int  # this store has them already
    problems: tuple[LineProblem, ...]


class Carried(Struct, frozen=True):
    """What a record needs to go on elsewhere."""

    reference: str
    tool: str
    key: str
    fingerprint: str
    terms: dict[str, Any]  # numbers as text: JSON has no infinity
    tenant: str
    scope: str
    step: str
    arguments: bytes
    latch: str
    after: str
    state: State
    sends: int
    created_at: float
    first_dispatch_at: float
    reason: str
    evidence: tuple[Evidence, ...]

    def request(self, now: float) -> Request:
        """The request as it was. The time to send it again runs from the first send, not today."""
        terms = msgspec.convert(self.terms, Terms, strict=False)
        if self.sends > 0:
            left_s = max(0.0, self.first_dispatch_at + terms.resend_s - now)
            terms = msgspec.convert({**self.terms, "resend_s": left_s}, Terms, strict=False)
        return Request(terms=terms, **{name: getattr(self, name) for name in _ASKED})


class _Line(Struct, frozen=True):
    format: str
    version: int
    digest: str
    letter: msgspec.Raw


def write_line(record: Record, reference: str) -> bytes:
    """One letter as a line. What does not open here would be lost, yet taken for the letter."""
    r = record.request
    if _is_closed(r.arguments, record.evidence):
        raise ContractViolation(
            f"{reference} cannot be carried: some of it does not open here, because its key is"
            " missing or it was changed. Nothing more was written. Give the guard all keys, and"
            " export again."
        )
    carried = Carried(
        reference=reference,
        tool=r.terms.tool,
        terms=orjson.loads(write_terms(r.terms)),
        **{name: getattr(r, name) for name in _ASKED},
        **{name: getattr(record, name) for name in _KNOWN},
    )
    # it may be written to a terminal
    letter = harmless_json(msgspec.json.encode(carried).decode()).encode()
    return msgspec.json.encode(_Line(FORMAT, VERSION, _digest(letter), msgspec.Raw(letter))) + b"\n"


def read_line(line: bytes) -> tuple[Carried, str]:
    """A line as a letter, and its digest; `BadLine` says what is wrong with it."""
    try:
        read = msgspec.json.decode(line, type=_Line)
    except msgspec.ValidationError as error:
        raise BadLine(f"it is not a dead letter ({error})") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"it is torn, or not JSON ({error})") from None
    if (read.format, read.version) != (FORMAT, VERSION):
        raise BadLine(
            f"it is {read.format!r} version {read.version}; this release reads {FORMAT!r} version"
            f" {VERSION}"
        )
    letter = bytes(read.letter)
    if _digest(letter) != read.digest:
        raise BadLine("it was changed after it was written: its digest does not fit")
    try:
        carried = msgspec.json.decode(letter, type=Carried)
        request = carried.request(0.0)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadLine(f"it is not a dead letter ({error})") from None
    if _is_closed(carried.arguments, carried.evidence):
        raise BadLine(
            "some of it did not open where it was exported: export it again with all keys"
        )
    if not _is_possible(carried, request.terms):
        raise BadLine(
            "it has a number that none of ours has: a time or a window that is no number, below"
            " zero, or beyond all calendars"
        )
    if carried.state not in (State.CLAIMED, State.DISPATCHED, State.IN_DOUBT):
        raise BadLine(f"it is {carried.state}: that is an outcome, not a dead letter")
    if request.terms.steps:
        raise BadLine(
            "it is a run of a workflow: what its steps have done is known in its own store alone;"
            " resume it there"
        )
    return carried, read.digest


def _is_closed(arguments: bytes, evidence: tuple[Evidence, ...]) -> bool:
    return any(is_closed(data) for data in (arguments, *(entry.outcome for entry in evidence)))


def _is_possible(carried: Carried, terms: Terms) -> bool:
    """Terms carry numbers as text, which may say NaN. What no list can show hides other letters."""
    happened = (entry.at for entry in carried.evidence)
    times = (carried.created_at, carried.first_dispatch_at, *happened)
    lasting = (terms.window_s, terms.resend_s, terms.tombstone_s, terms.delay_s or 0.0)
    return (
        all(0 <= each < TIME_MAX for each in times)
        and all(each >= 0 for each in lasting)
        and carried.sends >= 0
    )


def _digest(letter: bytes) -> str:
    return hashlib.sha256(letter).hexdigest()


def write_file(file: str | os.PathLike[str] | IO[bytes], lines: Iterable[bytes]) -> int:
    """Write lines; a named file is complete on disk or not there, and no other user may read it."""
    if not isinstance(file, str | os.PathLike):
        return _write(file, lines)
    part = f"{os.fspath(file)}.part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)  # noqa: PTH108  # left behind by another process, with whatever rights
    try:
        with open(part, "wb", opener=_only_ours) as opened:
            written = _write(opened, lines)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(part, file)  # noqa: PTH105
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)  # noqa: PTH108  # half of it would lie there, in the clear
        raise
    return written


def _write(file: IO[bytes], lines: Iterable[bytes]) -> int:
    written = 0
    for line in lines:
        file.write(line)
        written += 1
    return written


def read_file(file: str | os.PathLike[str] | IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, without empty ones."""
    if isinstance(file, str | os.PathLike):
        with open(file, "rb") as opened:  # noqa: PTH123
            yield from read_file(opened)
        return
    for number in itertools.count(1):
        line = file.readline(LINE_MAX)
        if not line:
            return
        rest = line
        # its beginning says that it is torn; its end is passed over
        while len(rest) == LINE_MAX and not rest.endswith(b"\n"):
            rest = file.readline(LINE_MAX)
        if line.strip():
            yield number, line


def _only_ours(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_EXCL, 0o600)
