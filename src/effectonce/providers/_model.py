"""The fields of a provider. What a file leaves out is unknown; `Facts` says which page states
the rest, and when it was read.

Where the pages of a provider disagree about a number, the file has the one that promises less.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Literal

from msgspec import Meta, Struct

OLD_AFTER = dt.timedelta(days=180)

Seconds = Annotated[int, Meta(gt=0)]
Length = Annotated[int, Meta(gt=0)]
Status = Annotated[int, Meta(ge=100, le=599)]
Text = Annotated[str, Meta(min_length=1)]

Where = Literal["header", "body", "argument", "none"]
Stored = Literal["all", "refusals too", "successes", "the object", "nothing"]
Says = Literal["mismatch", "in flight", "done before", "refused", "unknown"]
Repeat = Literal[
    "replay", "conflict", "conflict_with_id", "latest_status", "existing_object", "runs_again"
]


class ProviderKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the key goes, and which keys are accepted. *pattern* is that of the whole key.

    *form* is what to send: a UUID where one is required or advised.
    """

    where: Where
    name: Text | None = None
    length_min: Length | None = None
    length_max: Length | None = None
    pattern: Text | None = None
    form: Literal["uuid", "plain"] = "plain"
    required: bool | None = None

    def __post_init__(self) -> None:
        if (self.name is None) != (self.where == "none"):
            raise ValueError("a key has a name, unless where is 'none'")
        if (
            self.length_min is not None
            and self.length_max is not None
            and self.length_min > self.length_max
        ):
            raise ValueError("length_min is more than length_max")
        if self.pattern is not None:
            _require_pattern(self.pattern)


class ProviderProbe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to ask whether it happened. *delay_s* is how long the answer may lag behind.

    *not_found_is_proof* is true only if a page says that what is not found after that delay did
    not happen.
    """

    by: Text
    not_found_is_proof: bool = False
    delay_s: Seconds | None = None


class ErrorMeaning(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an answer says about the key: by its status, its code, or both.

    *meaning* is for people, *says* for programs: `refused` is that nothing was done, `unknown`
    that it may have been.
    """

    meaning: Text
    says: Says
    status: Status | None = None
    code: Text | None = None

    def __post_init__(self) -> None:
        if self.status is None and self.code is None:
            raise ValueError("an error has a status or a code")


class Fact(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The page that states it and the day on which it was read; or nothing but *unverified*."""

    link: str | None = None
    date: dt.date | None = None
    unverified: bool = False
    note: Text | None = None

    def __post_init__(self) -> None:
        if self.unverified:
            if self.link is not None or self.date is not None:
                raise ValueError("what is unverified has neither link nor date")
        elif self.link is None or self.date is None:
            raise ValueError("a fact has a link and a date, or is unverified")
        elif not self.link.startswith("https://"):
            raise ValueError("a link begins with https://")


class Facts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One for each field of a provider that says something about repeats."""

    key: Fact
    window_s: Fact
    stored: Fact
    repeat: Fact
    mismatch: Fact
    in_flight: Fact
    probe: Fact
    errors: Fact


class Provider(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an API of others does with a repeated request. `None` is unknown, or not published.

    *window_s* is how long a key is remembered at least, or "no end". *stored* is which first
    answers are kept:

    - `all`: whatever was answered once the work began, server errors, too;
    - `refusals too`: successes and refusals;
    - `successes`: after anything else, a repeat runs again;
    - `the object`: what was created is found by its key;
    - `nothing`: there is no key.

    *mismatch* is the answer to a key with another request, *in_flight* that to a repeat while
    the first request is running: a status, the name of an error, or a few words.
    """

    name: Text
    title: Text
    summary: Text
    key: ProviderKey
    facts: Facts
    window_s: Seconds | Literal["no end"] | None = None
    stored: Stored | None = None
    repeat: Repeat | None = None
    mismatch: int | str | None = None
    in_flight: int | str | None = None
    probe: ProviderProbe | None = None
    errors: tuple[ErrorMeaning, ...] = ()


def _require_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern: {error}") from None
