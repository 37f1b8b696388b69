"""What a tool promises about its effect, and what we can therefore promise about ours.

`GUARANTEES` is the table in the README, cell by cell. The engine reads its re-send rule from
here, the kill tests read what must hold from here, and the README's table is checked against it:
one source for what we say and what we do.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from effectonce._core.resolved import resolved


class Kind(StrEnum):
    """What happens to the world when the tool runs twice."""

    READ = "read"
    IDEMPOTENT_WRITE = "idempotent_write"
    WRITE = "write"
    IRREVERSIBLE = "irreversible"


KindName: TypeAlias = Literal["read", "idempotent_write", "write", "irreversible"]
CapabilityName: TypeAlias = Literal["transaction", "key", "probe", "none"]


class Capability(StrEnum):
    """The downstream's help: shares our transaction, honours our key, can be asked, or nothing."""

    TRANSACTION = "transaction"
    KEY = "key"
    PROBE = "probe"
    NONE = "none"


class Resend(StrEnum):
    """When an effect whose outcome was lost may be sent again."""

    ALWAYS = "always"
    WINDOW = "window"  # while the downstream still honours our key
    PROBED = "probed"  # after "not found", once the declared delay bound has passed
    NEVER = "never"


class Guarantee(Struct, frozen=True):
    resend: Resend
    effects_max: int | None  # None: the tool itself makes repeats harmless
    promise: str


_READ = Guarantee(Resend.ALWAYS, None, "may re-run, no record")
_AT_LEAST_ONCE = Guarantee(Resend.ALWAYS, None, "at least once, version check advised")
_AT_MOST_ONCE = Guarantee(Resend.NEVER, 1, "at most once + in doubt")

GUARANTEES: dict[tuple[Kind, Capability], Guarantee] = {
    (Kind.READ, Capability.TRANSACTION): _READ,
    (Kind.READ, Capability.KEY): _READ,
    (Kind.READ, Capability.PROBE): _READ,
    (Kind.READ, Capability.NONE): _READ,
    (Kind.IDEMPOTENT_WRITE, Capability.TRANSACTION): Guarantee(Resend.ALWAYS, 1, "exactly once"),
    (Kind.IDEMPOTENT_WRITE, Capability.KEY): Guarantee(Resend.ALWAYS, 1, "exactly once within W"),
    (Kind.IDEMPOTENT_WRITE, Capability.PROBE): _AT_LEAST_ONCE,
    (Kind.IDEMPOTENT_WRITE, Capability.NONE): _AT_LEAST_ONCE,
    (Kind.WRITE, Capability.TRANSACTION): Guarantee(Resend.ALWAYS, 1, "exactly once"),
    (Kind.WRITE, Capability.KEY): Guarantee(
        Resend.WINDOW, 1, "exactly once within W, then in doubt"
    ),
    (Kind.WRITE, Capability.PROBE): Guarantee(
        Resend.PROBED,
        1,
        "found: once; not found: re-run only under a declared delay bound, else a person decides",
    ),
    (Kind.WRITE, Capability.NONE): _AT_MOST_ONCE,
    (Kind.IRREVERSIBLE, Capability.TRANSACTION): Guarantee(Resend.ALWAYS, 1, "exactly once"),
    (Kind.IRREVERSIBLE, Capability.KEY): Guarantee(
        Resend.WINDOW, 1, "exactly once within W, then in doubt; durable store only"
    ),
    (Kind.IRREVERSIBLE, Capability.PROBE): Guarantee(
        Resend.NEVER, 1, "never re-run on “not found”; at most once + in doubt"
    ),
    (Kind.IRREVERSIBLE, Capability.NONE): _AT_MOST_ONCE,
}

DAY_S = 86_400.0
LEASE_MAX_S = DAY_S / 2  # heartbeats renew a lease, so none needs to be longer
# How long a key is honoured after its outcome. An idempotent write is honoured for as long as
# its resource may live.
WINDOW_S: dict[Kind, float] = {
    Kind.READ: 0.0,
    Kind.IDEMPOTENT_WRITE: inf,
    Kind.WRITE: 7 * DAY_S,
    Kind.IRREVERSIBLE: 30 * DAY_S,
}
# how long an expired key is refused: a later retry is rarer than the room is dear
TOMBSTONE_S = 365 * DAY_S


# each record asks for its written form
class Terms(Struct, frozen=True, kw_only=True, cache_hash=True):
    """The part of a contract that the first claim pins in the record: deploys cannot loosen it."""

    tool: str
    version: str
    kind: Kind
    downstream: Capability
    window_s: float
    # how long after the first dispatch the same request may be sent again; 0 = never
    resend_s: float
    delay_s: float | None = None  # probe only: no send lands later than this after its lease
    stores_rejections: bool = False  # key only: the downstream replays its own refusals
    tombstone_s: float = inf  # how long an expired key is remembered as expired
    rerun: bool = False  # time-window dedup only: an expired key runs again
    # a workflow: all that it does is recorded on its own, so it is never sent, and may always be
    # run again
    steps: bool = False
    approval: bool = False  # nothing is sent before a person has approved these very arguments
    four_eyes: bool = False  # and not the one who asked for it
    valid_s: float = 0.0  # for how long an approval is good
    provider: str = ""  # whose API it is, if the tool says so
    # key only: in which shape the key is sent; a repeat with another one is not recognised
    key_shape: str = ""


def unasked(terms: Terms) -> Terms:
    """The same where no person is asked: of calls that need it not, and of what was sent."""
    if not terms.approval:
        return terms
    return structs.replace(terms, approval=False, four_eyes=False, valid_s=0.0)


def resend_window_s(kind: Kind, downstream: Capability, key_window_s: float) -> float:
    """How long after the first dispatch a lost request may be sent again under the same key."""
    match GUARANTEES[kind, downstream].resend:
        case Resend.ALWAYS:
            return inf
        case Resend.WINDOW:
            # The margin covers a request that leaves now and is judged by the downstream a
            # little later.
            return key_window_s - min(60.0, key_window_s / 10)
        case Resend.PROBED | Resend.NEVER:
            return 0.0


resolved(Terms)
