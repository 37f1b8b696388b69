"""The effect that is running now, as its tool sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from msgspec import Struct

from effectonce._core.classification.verdicts import Bucket, Certainty, Verdict
from effectonce._core.effect_ref import EffectRef
from effectonce._core.guarantees import Terms
from effectonce._core.key_shapes import DIGITS_AND_LETTERS, MOST, KeyShape, SentKey, shaped_key
from effectonce._core.keys import downstream_key, request_key
from effectonce._core.observed_sends import Sighting
from effectonce.errors import ContractViolation

# whose monotonic clock a time is of: an error that was pickled elsewhere comes with another object
THIS_CLOCK = object()
# an attempt ended, and was taken as one that sent nothing: a thread or a task of it that goes on
# may not send any more
OVER = "over"
NOT_WRITTEN = Verdict(
    Bucket.CANCELLED, Certainty.NOT_SENT, "its record could not say that it leaves"
)


class Effect(Struct, frozen=True):
    """What a running tool or probe may know about its own effect."""

    ref: EffectRef
    attempt: int
    # a fencing token: it grows with every owner, so a downstream can refuse an older one
    epoch: int
    deadline: float  # on the monotonic clock
    secret: bytes = b""
    lent: Any = None  # the connection of the open transaction, for downstream="transaction"
    terms: Terms | None = None  # what its tool declares; None: a probe asks
    one_request: bool = False  # the tool says that it makes one request and no more
    # an earlier send had no answer, and may have landed: that this one is refused is no proof
    sent_before: bool = False
    sent: dict[
        tuple[str, str], dict[int, set[str]]
    ] = {}  # requests of all attempts of this call, by method and path: whose a number is
    sent_key: SentKey | None = None  # how its provider takes the key, if its tool names one
    # those of this attempt: is the number in use, or was it given back
    taken: dict[tuple[str, str], dict[int, bool]] = {}
    used: set[str] = set()  # of what its tool declares: "key", "connection", "sending"; and OVER
    # of this attempt, that may change something: seen by protected clients, or announced
    requests: list[Sighting] = []
    elsewhere: list[str] = []  # what this attempt was seen to do past its protected clients
    # for a probe: when the request was first sent, in seconds since 1970 by the store's clock,
    # and for how many seconds it has been in doubt. 0 and 0 in a tool that runs
    sent_at: float = 0.0
    in_doubt_s: float = 0.0
    unsent: bool = False  # for a probe: it is asked before the first send

    def __repr__(self) -> str:
        """As `EffectRef`: neither the key nor the guard's secret, nor the connection, whose URL
        may have a password.
        """
        return f"<{type(self).__name__} {self.ref}, attempt {self.attempt}, epoch {self.epoch}>"

    @property
    def key(self) -> str:
        """The effect's identity. Keep it to yourself: hand out `downstream_key`."""
        self.used.add("key")
        return self.ref.key

    @property
    def downstream_key(self) -> str:
        """The idempotency key to send: the same on every attempt, at most 255 characters, and it
        gives nothing away. If the tool names its provider, it has the shape that this one takes.

        That it was read is noticed: an attempt that did not read it cannot have sent it, and is
        not sent again.
        """
        self.used.add("key")
        if self.sent_key is not None:
            return shaped_key(self.sent_key.shape, self.ref.key, self.ref.tool, self.secret)
        return downstream_key(self.ref.key, self.ref.tool, self.secret)

    def key_as(
        self,
        form: str = "plain",
        *,
        min: int = 1,  # noqa: A002  # a provider's page has these words
        max: int = MOST,  # noqa: A002
        alphabet: str = DIGITS_AND_LETTERS,
        weak: bool = False,
    ) -> str:
        """The idempotency key to send where `downstream_key` is too long, or has characters that
        the provider refuses.

        `key_as("uuid")`, or `key_as(max=36, alphabet=...)`. It is as stable, and that a tool got
        it is noticed as well. Fewer than 96 bits are refused, unless *weak* says that two
        effects may share a key.
        """
        try:
            shape = KeyShape(form, min, max, alphabet, weak)
        except ValueError as error:
            raise ContractViolation(f"key_as() made no key: {error}", effect=self.ref) from None
        self.used.add("key")
        return shaped_key(shape, self.ref.key, self.ref.tool, self.secret)

    @property
    def connection(self) -> Any:
        """The open transaction, for downstream="transaction"; otherwise None. That it was read
        is noticed, too.
        """
        self.used.add("connection")
        return self.lent

    def request_key(self, method: str, path: str, ordinal: int | str = 0) -> str:
        """The key that a protected client sends with the request number *ordinal*, or with the
        one of that name: for a probe.
        """
        key = request_key(self.downstream_key, method.upper(), path, ordinal)
        if self.sent_key is not None:
            return shaped_key(self.sent_key.shape, key, self.ref.tool, self.secret)
        return key

    def sending(self) -> Sending:
        """Around the part of a tool that sends. An error before it certainly had no effect; one
        inside it, or later, may have.

        A tool with `separate_dispatch=True` is marked as dispatched here. An async one enters it
        with `async with`: with `with`, its loop waits for the store.
        """
        return Sending(self)

    def announce(self, sighting: Sighting) -> None:
        """A request is about to leave. Not from an attempt that was taken as one that sent
        nothing: another one may be on its way.
        """
        self.requests.append(sighting)
        if OVER in self.used:
            sighting.verdict = Verdict(Bucket.CANCELLED, Certainty.NOT_SENT, "its attempt was over")
            raise self._left_behind(f"{sighting.request} was not sent.")

    def act_elsewhere(self, what: str) -> None:
        """It is about to connect a socket, past the protected clients, or to do something of the
        kind. An attempt that was taken as one that sent nothing may not.
        """
        self.elsewhere.append(what)
        if OVER in self.used:
            raise self._left_behind(f"It {what}: that was stopped.")

    def _left_behind(self, then: str) -> ContractViolation:
        message = (
            f"an attempt of {self.ref} left something behind, and ended as one that sent nothing."
            f" {then}"
        )
        return ContractViolation(message, effect=self.ref)

    @property
    def remaining_s(self) -> float:
        """How many seconds of the call's deadline are left."""
        return max(0.0, self.deadline - time.monotonic())

    def timeout_s(self, at_most: float) -> float:
        """A time-out for a request of the tool: what it usually takes *at_most*, or what is
        left, if that is less.
        """
        return min(at_most, self.remaining_s)


class Departure(Protocol):
    """What has to be written before anything of the attempt with this key may leave."""

    @property
    def key(self) -> str: ...

    @property
    def outer(self) -> Departure | None: ...  # of the tool that runs this one

    def write_now(self) -> None: ...

    async def awrite_now(self) -> None: ...


class Sending:
    """What `Effect.sending()` gives: to be entered with `with` or `async with`."""

    def __init__(self, effect: Effect) -> None:
        self._effect, self._inside = effect, ExitStack()

    def __enter__(self) -> None:
        with ExitStack() as entered:
            leaving(self._effect, self._announced(entered))
            self._inside = entered.pop_all()

    def __exit__(self, *_: object) -> None:
        self._inside.close()

    async def __aenter__(self) -> None:
        with ExitStack() as entered:
            await aleaving(self._effect, self._announced(entered))
            self._inside = entered.pop_all()

    async def __aexit__(self, *_: object) -> None:
        self._inside.close()

    def _announced(self, entered: ExitStack) -> Sighting:
        sighting = Sighting("what sending() surrounds")
        self._effect.used.add("sending")
        self._effect.announce(sighting)
        entered.enter_context(past_us())
        return sighting


running: ContextVar[Effect | None] = ContextVar("effectonce_effect", default=None)
departure: ContextVar[Departure | None] = ContextVar(
    "effectonce_departure", default=None
)  # of a tool whose dispatch is held back
# whose request is under way here
noted: ContextVar[Effect | None] = ContextVar("effectonce_noted", default=None)


@contextmanager
def past_us() -> Iterator[None]:
    """What is done here is noted as a request already: its sockets and threads are not noticed
    once more.
    """
    token = noted.set(running.get())
    try:
        yield
    finally:
        noted.reset(token)


def leaving(effect: Effect, sighting: Sighting) -> None:
    """Something is about to leave that was announced: from here on, the record says so. Raises
    if it may not leave.
    """
    held = _departure_of(effect)
    if held is not None:
        with past_us(), _unsent(sighting):
            held.write_now()


def leaving_unseen(effect: Effect) -> None:
    """Something may be about to leave that was not announced: from here on, the record says so."""
    held = _departure_of(effect)
    if held is not None:
        with past_us():  # the store may connect, too
            held.write_now()


async def aleaving(effect: Effect, sighting: Sighting) -> None:
    """The same for an async tool."""
    held = _departure_of(effect)
    if held is not None:
        with past_us(), _unsent(sighting):
            await held.awrite_now()


async def aleaving_unseen(effect: Effect) -> None:
    held = _departure_of(effect)
    if held is not None:
        with past_us():
            await held.awrite_now()


def _departure_of(effect: Effect) -> Departure | None:
    held = departure.get()
    while held is not None and held.key != effect.ref.key:
        held = held.outer
    return held


@contextmanager
def _unsent(sighting: Sighting) -> Iterator[None]:
    try:
        yield
    except BaseException:
        sighting.verdict = NOT_WRITTEN
        raise


def current_effect() -> Effect:
    """The effect whose tool or probe is running here."""
    effect = running.get()
    if effect is None:
        raise LookupError("current_effect() is known only inside a tool or probe that a Guard runs")
    return effect


def is_running(key: str) -> bool:
    """Is the caller inside the effect with this key? A tool that is protected twice would wait
    for itself.
    """
    effect = running.get()
    return effect is not None and effect.ref.key == key
