"""Why effects are stuck, without what differs from one to the next.

Effects with the same tool, error, cause and tenant have the same trouble: they are one group,
and one decision settles them. A group has a name that the same trouble gets in every process.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from msgspec import Struct

from effectonce._core.attempt_log import FailedAttempt
from effectonce._core.failed_attempts import attempts_of
from effectonce._core.record import Record
from effectonce.approvals._standing import apart

# the error of an attempt stands behind the reason, with a message that differs each time
_ERROR = re.compile(r" \((\w[\w.]*)(?:: .*)?\)(?=;|\Z)", re.DOTALL)
# A status says what the trouble is; other numbers, names in quotes and addresses say whose it is.
_STATUS = r"(?P<status>\b(?:status|http|code|errno)\b[ :=/]*\d{1,5}\b)"
_VARIABLE = re.compile(
    rf"{_STATUS}|\"[^\"]*\"|(?<!\w)'[^']*'|“[^”]*”|\S*(?:\d|@|://)\S*", re.IGNORECASE
)
_ONE = "…"  # stands for whatever was there
CAUSE_MAX = 200
GROUP_PREFIX, _DIGITS = "g_", 10


class SharedCause(Struct, frozen=True):
    """What effects of one group have in common."""

    tool: str
    error: str  # the type of the last error; "": none was recorded
    cause: str
    tenant: str

    @property
    def group(self) -> str:
        """The name of the group."""
        parts = (self.tool, self.error, self.cause, self.tenant)
        named = "".join(f"{len(part)}:{part}" for part in parts)
        digest = hashlib.sha256(named.encode(errors="surrogatepass")).hexdigest()
        return f"{GROUP_PREFIX}{digest[:_DIGITS]}"


def last_attempt(attempts: Sequence[FailedAttempt]) -> FailedAttempt | None:
    """The last one that was tried. None: none was recorded."""
    tried = [attempt for attempt in attempts if attempt.number > 0] or attempts
    return tried[-1] if tried else None


def error_type(record: Record) -> str:
    """The type of its last error; "" if none was recorded."""
    last = last_attempt(attempts_of(apart(record)))
    return "" if last is None else last.error


def trouble_of(record: Record, attempts: Sequence[FailedAttempt] | None = None) -> SharedCause:
    """Why this one is stuck. *attempts* are those that are known, where a caller has them."""
    known = attempts_of(apart(record)) if attempts is None else attempts
    last = last_attempt(known)
    error, message = ("", "") if last is None else (last.error, last.message)
    said = cause_of(record)
    return SharedCause(
        record.request.terms.tool, error, said or without_variables(message), record.request.tenant
    )


def cause_of(record: Record) -> str:
    """The reason on a record, without what only this one error said."""
    reason = _ERROR.sub(lambda error: f" ({error[1]})", apart(record).reason)
    return without_variables(reason)


def without_variables(text: str) -> str:
    """A message without the numbers, names and addresses of one request."""
    plain = _VARIABLE.sub(lambda found: found["status"] or _ONE, text)
    return " ".join(plain.split())[:CAUSE_MAX]
