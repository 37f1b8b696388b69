"""Which key goes with which request of an effect.

An effect has one key, a tool may make several requests. Each that is not idempotent by its
method needs a key of its own: the same when the tool runs again, another than that of its
neighbours. So it is derived from the effect's key, the method, the path, and a number: how many
other requests went to that place before it in this run of the tool.

Rule 1: A number belongs to a request. If it was not answered well, the same request again has
its number, inside the tool or below it; another request has another one. What is the same is
defined in `same_request.py`.
Rule 2: The body is not in the key, only in the memory of this call: when the tool runs again in
the same order, the keys are the same whatever became of the bodies.
Rule 3: What an earlier attempt of this call sent keeps its number, whatever the tool skips
because it finds it done. What no attempt has sent before goes by its order. Another process
knows nothing of earlier attempts: there all goes by order, and names are for the rest.

Why the place, and not the order alone: what comes after something that was skipped must keep its
key. A tool that declares `one_request=True` has one place, and the effect's own key for it.

A redirect to the same path of another host, which hands the request on unchanged, has not
answered it: both hops have the same key.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from msgspec import Struct

from effectonce._log import LOG
from effectonce.effect import Effect
from effectonce.errors import ContractViolation

EVERYWHERE = "*"
# Stripe's look like a UUID, and are none
_RANDOM = re.compile(r'"?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"?', re.IGNORECASE)
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_lock = threading.Lock()
_name: ContextVar[str] = ContextVar("effectonce_request_name", default="")
# The caller's own key for the request that an SDK is about to send, or "": it may be a UUID, and
# look like a random one.
given_to_sdk: ContextVar[str] = ContextVar("effectonce_given_to_sdk", default="")


class KeyHeader(Struct, frozen=True):
    """How a host wants its key: in which header, and whether as a structured-field string, in
    quotes.

    *replaces_random* is for an SDK that makes up a random key for each call: inside an effect,
    ours is sent instead of whatever looks like one.
    """

    name: str = "Idempotency-Key"
    quoted: bool = False
    replaces_random: bool = False

    def __post_init__(self) -> None:
        if TOKEN.fullmatch(self.name) is None:
            raise ContractViolation(
                f"KeyHeader(name={self.name!r}): this cannot be the name of a header"
            )

    def written(self, key: str) -> str:
        return f'"{key}"' if self.quoted else key

    def keeps(self, given: str) -> bool:
        if not self.replaces_random or given == given_to_sdk.get():
            return True
        return _RANDOM.fullmatch(given) is None


Keys: TypeAlias = "KeyHeader | str | Mapping[str, KeyHeader | str | None] | None"


def by_host(keys: Keys) -> dict[str, KeyHeader | None]:
    """What each host expects; `"*"` is every other."""
    given = keys if isinstance(keys, Mapping) else {EVERYWHERE: keys}
    for host, header in given.items():
        # it would fit no request, and no key would be sent
        if set(host) & set("/@[] ") or host.count(":") == 1:
            raise ContractViolation(
                f"keys has {host!r}: write the host alone, such as 'api.example.com', on whichever"
                " port it is"
            )
        if not isinstance(header, KeyHeader | str | None):
            raise ContractViolation(
                f"keys has {header!r}: give the name of a header, a KeyHeader, or None for no key"
            )
    return {
        host.lower(): KeyHeader(header) if isinstance(header, str) else header
        for host, header in given.items()
    }


@contextmanager
def named(name: str) -> Iterator[None]:
    """Give the requests in this block a name instead of a number: where several to one place
    leave at once, or in any order.
    """
    if not name:
        raise ContractViolation("named(''): what tells this request from its neighbours?")
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


class Slot(Struct, frozen=True):
    """The number of a request among those of an effect that go to the same place."""

    effect: Effect
    place: tuple[str, str]
    ordinal: int | str
    key: str

    def give_back(self, *, also: frozenset[str] = frozenset()) -> None:
        """It was not answered well: if the same request comes next, this is its number. *also*:
        how it looks where it was handed on.
        """
        if isinstance(self.ordinal, int):
            with _lock:
                self.effect.taken[self.place][self.ordinal] = False
                self.effect.sent[self.place][self.ordinal] |= also


def take(effect: Effect, method: str, path: str, asks: frozenset[str]) -> Slot:
    """The number of this request, or the name of the block."""
    place, name = (method, path), _name.get()
    if name:
        return Slot(effect, place, name, effect.request_key(method, path, name))
    with _lock:
        ordinal, mixed_up = _number(effect, place, asks)
        alone = effect.one_request and ordinal == 0 and next(iter(effect.sent)) == place
    if mixed_up:
        LOG.warning(
            "%s: %s %s goes out under the key of another request, which an earlier attempt of this"
            " call sent in its place. If they are one request whose body changes, nothing is wrong."
            " If they are two, this one may get the answer of the other and not be done: give each"
            " a name, with named(...) of effectonce.http.client.",
            effect.ref,
            method,
            path,
        )
    key = effect.downstream_key if alone else effect.request_key(method, path, ordinal)
    return Slot(effect, place, ordinal, key)


def _number(effect: Effect, place: tuple[str, str], asks: frozenset[str]) -> tuple[int, bool]:
    """The number, and whether an earlier attempt gave it to another request."""
    taken, sent = effect.taken.setdefault(place, {}), effect.sent.setdefault(place, {})
    for number, known in sent.items():
        if known & asks and not taken.get(number, False):
            taken[number] = True
            known.update(asks)
            return number, False
    number = max(taken, default=-1) + 1
    before = sent.get(number, set())
    taken[number], sent[number] = True, set(asks)
    return number, bool(before and asks)
