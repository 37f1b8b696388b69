"""One request under a policy, whichever client sends it: a key, some attempts, and what is known
when they end.

Theory of operation. A client's adapter says what is asked (`OutgoingRequest`) and how to send it
once; the flow in `_core/retry_flow.py` decides about everything else, as it does for `@retry`.
An answer with an error status is raised inside the flow, so that the tables judge it, and
returned at the end as the answer that it is. A short body is read within the attempt: an answer
that broke off was none.

Rule 1: A request that may have landed leaves again only if its method is idempotent, or the tool
is, or a key that is honoured goes with it. Rule 2: What leaves again is the same: the same key,
the same bytes. A body that can be read once is sent once. Rule 3: At the end it can be read what
all attempts together say: `error.effectonce_tried`, or a header of the last response. Rule 4: No
attempt waits longer than the effect has time left.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Self
from urllib.parse import unquote, urljoin, urlsplit

from msgspec import Struct, structs

from effectonce import Circuit, Circuits, GaveUp, Retry, RetryBudget
from effectonce._core.classification.classify import (
    READS,
    REPEATABLE_METHODS,
    Classifier,
    Rule,
    Rules,
    as_rules,
    classifier,
)
from effectonce._core.classification.verdicts import TRIED_HEADER, Bucket, Certainty, Tried, Verdict
from effectonce._core.endings import Fresh
from effectonce._core.guarantees import Capability
from effectonce._core.key_shapes import SentKey
from effectonce._core.observed_sends import Sighting
from effectonce._core.ops import Flow
from effectonce._core.retry_flow import Over, whole_call
from effectonce._core.retry_state import Env
from effectonce._drivers import drive
from effectonce._runtime.performers import adrive_call
from effectonce._runtime.plain_performers import AsyncPlain, Plain
from effectonce.effect import Effect, aleaving, leaving, past_us, running
from effectonce.http.client.keys import EVERYWHERE, KeyHeader, Keys, Slot, by_host, take
from effectonce.http.client.same_request import fingerprints
from effectonce.retries.retry import ENV, REPEATABLE, Retrier, retrying, tell
from effectonce.stores.base import Store

HELD_MAX = 1 << 20  # an answer up to this size is read within the attempt
SWITCHED = 101  # a WebSocket: what goes through it is not seen
HANDED_ON = frozenset({307, 308})
# the server did what was asked, all of it; a 303 may lead to a log-in
DONE = frozenset({*range(200, 300)} - {207})
UNSENT = Verdict(Bucket.CONFIG, Certainty.NOT_SENT, "no client sends to such a URL")
# Above, such an error may be about where an answer redirects to. Here, each request is one of
# its own.
BELOW_REDIRECTS = (
    Rule("httpx.UnsupportedProtocol", UNSENT),
    Rule("httpx2.UnsupportedProtocol", UNSENT),
)
MOVED = Verdict(Bucket.OK, Certainty.NOT_SENT, "the same request is made at another place")
LONGEST_S = 86_400.0  # a socket takes no time-out without end
SHORTEST_S = 0.001  # a time-out of zero means none to some clients


Watch = Callable[[Callable[[], object], Callable[[], object]], object]


class OutgoingRequest(Struct, frozen=True):
    """A request, as far as the policy looks at it."""

    method: str
    url: str
    host: str
    path: str
    # of the request itself: the key is put in here while it is sent
    headers: MutableMapping[str, str]
    body: bytes | None  # None: it can be read once, so it is sent once


class Answered(Struct, frozen=True):
    """A response, as far as the policy looks at it."""

    status: int
    headers: Mapping[str, str]
    body: bytes  # as far as it was read: what went wrong often stands there
    response: Any
    mark: Callable[[str, str], object]  # adds a header to the response
    drop: Callable[[], object]  # it will not be read any more
    # its body was not read: calls the first if it breaks off, and, where the client can tell, the
    # second when it was read to its end
    watch: Watch | None = None


class RefusedStatus(Exception):
    """An answer that is an error, for the tables to read."""

    def __init__(self, asked: OutgoingRequest, answered: Answered) -> None:
        super().__init__(f"HTTP {answered.status}")
        self.status, self.headers, self.body = answered.status, answered.headers, answered.body
        self.url, self.answered = asked.url, answered


class ClientPolicy:
    """What all requests of one client share."""

    def __init__(
        self,
        policy: Retry,
        keys: Keys,
        breaker: Circuit | Circuits | None,
        budget: RetryBudget | None,
        store: Store | None,
        rules: Rules,
        *,
        harmless: bool,
        env: Env = ENV,
    ) -> None:
        self.harmless = harmless  # to repeat any request of this client
        self.policy, self.breaker, self.budget = policy, breaker, budget
        self.store, self.env = store, env
        self.once = structs.replace(policy, attempts=1)
        self._rules = (*as_rules(rules), *BELOW_REDIRECTS)
        # by how the provider of a tool takes its key; None: it names none
        self._judges: dict[SentKey | None, Classifier] = {None: self._judging(())}
        self._headers = by_host(keys)

    def _judging(self, theirs: tuple[Rule, ...]) -> Classifier:
        known = (*self._rules, *theirs)
        return classifier((), (), rules=known, one_request=True, wall_clock=time.time)

    def judge_for(self, provided: SentKey | None) -> Classifier:
        """What an error means, if it is of the provider that takes keys like that."""
        judge = self._judges.get(provided)
        if judge is None:
            assert provided is not None
            judge = self._judges[provided] = self._judging(provided.rules)
        return judge

    def replace_random(self) -> None:
        """For every named header: the SDK makes up a random key for each call; ours replaces it."""
        for host, header in self._headers.items():
            if header is not None:
                self._headers[host] = structs.replace(header, replaces_random=True)

    def header(self, host: str, provided: SentKey | None) -> KeyHeader | None:
        """That of the host; elsewhere, the one that the tool's provider reads, if it reads one."""
        usual = self._headers.get(host, self._headers.get(EVERYWHERE))
        if usual is None or provided is None or host in self._headers:
            return usual
        return structs.replace(usual, name=provided.header) if provided.header else None

    def retrier(self, asked: OutgoingRequest, judge: Classifier, *, repeatable: bool) -> Retrier:
        circuit = self.breaker[asked.host] if isinstance(self.breaker, Circuits) else self.breaker
        policy = self.once if asked.body is None else self.policy
        how = retrying(policy, judge, circuit, self.budget)
        return Retrier(how, repeatable=repeatable, store=self.store, name=asked.host, env=self.env)


class ClientAttempts:
    """A request from its first attempt to its last. While it is open, its key is in its headers."""

    def __init__(self, wire: ClientPolicy, asked: OutgoingRequest) -> None:
        self._wire, self._asked = wire, asked
        self._effect = effect_here()
        self._slot: Slot | None = None  # None: it has no number
        self._sighting = None if asked.method in READS else Sighting(f"{asked.method} {asked.host}")
        provided = None if self._effect is None else self._effect.sent_key
        self._judge = wire.judge_for(provided)
        self._header: KeyHeader | None = None
        if asked.method not in REPEATABLE_METHODS:
            self._header = wire.header(asked.host, provided)
        self._given = None if self._header is None else asked.headers.get(self._header.name)
        self._well = self._keyed = False
        # what the same request looks like where it was handed on
        self._moved: frozenset[str] = frozenset()
        self._last: Answered | None = None

    def __enter__(self) -> Self:
        if self._sighting is not None and self._effect is not None:
            self._effect.announce(self._sighting)
        self._keyed = self._put_key()
        self.repeatable = self._may_repeat(keyed=self._keyed)
        retrier = self._wire.retrier(self._asked, self._judge, repeatable=self.repeatable)
        now = self._wire.env.now()
        self._patience, self.store = retrier.patience(self._asked.host, now, attempt=0)
        if self._effect is not None:
            self._patience.give_up_at = min(self._patience.give_up_at, self._effect.deadline)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._header is not None:
            # The caller may send the same object for another effect: that must not find our key
            # in it.
            if self._given is not None:
                self._asked.headers[self._header.name] = self._given
            else:
                self._asked.headers.pop(self._header.name, None)
        if self._slot is not None and not self._well:
            self._slot.give_back(also=self._moved)

    def leaves(self) -> None:
        """What may change something is about to leave: the record of its effect has to say so."""
        if self._sighting is not None and self._effect is not None:
            leaving(self._effect, self._sighting)

    async def aleaves(self) -> None:
        if self._sighting is not None and self._effect is not None:
            await aleaving(self._effect, self._sighting)

    def switches(self, ended: Fresh | Over) -> bool:
        """Is a read answered with a connection of which nothing is seen? What follows is announced
        like a request that may change something, so it has to be written before it is handed out.
        """
        if self._sighting is not None or self._effect is None or _status(ended) != SWITCHED:
            return False
        self._sighting = Sighting(f"what follows {self._asked.method} {self._asked.host}")
        return True

    @contextmanager
    def handing_out(self, ended: Fresh | Over) -> Iterator[None]:
        """A connection through which nothing may leave is not handed out."""
        try:
            if self._sighting is not None and self._effect is not None:
                self._effect.announce(self._sighting)
            yield
        except BaseException:
            if isinstance(ended, Fresh):
                ended.value.drop()
            raise

    def _put_key(self) -> bool:
        """Is there a key in the headers now?"""
        header, effect, given = self._header, self._effect, self._given
        if effect is not None and self._asked.method in ("PUT", "DELETE"):
            effect.used.add("key")  # it needs none: to repeat it does no harm by its method
        if header is None:
            return False
        if given is not None and (effect is None or header.keeps(given)):
            return True
        if effect is None:
            return False
        asks = self._asks(urlsplit(self._asked.url).query)
        self._slot = take(effect, self._asked.method, self._asked.path, asks)
        self._asked.headers[header.name] = header.written(self._slot.key)
        return True

    def _asks(self, query: str) -> frozenset[str]:
        return fingerprints(query, self._asked.headers, self._asked.body, time.time())

    def _may_repeat(self, *, keyed: bool) -> bool:
        if self._wire.harmless or self._asked.method in REPEATABLE_METHODS:
            return True
        terms = None if self._effect is None else self._effect.terms
        if terms is None:
            return keyed  # the caller's own key, to a host that is declared to expect one
        return terms.kind in REPEATABLE or (keyed and terms.downstream is Capability.KEY)

    # ------------------------------------------------------------ attempts

    def flow(self) -> Flow[Fresh | Over]:
        """Every attempt, the first one included."""
        if self._left_s() <= 0:
            late = Verdict(Bucket.NO_ANSWER, Certainty.NOT_SENT)
            self._saw(late)
            raise GaveUp(
                f"{self._asked.method} {self._asked.host}: the effect has no time left. Nothing was"
                " sent.",
                verdict=late,
            )
        return whole_call(self._patience, repeatable=self.repeatable)

    def begin(self) -> float:
        """Another attempt begins: how many seconds it may take."""
        if self._last is not None:
            self._last.drop()
        if self._sighting is not None:
            self._sighting.repeated = self._patience.unanswered is not None
        return min(max(self._left_s(), SHORTEST_S), LONGEST_S)

    def _left_s(self) -> float:
        return self._patience.give_up_at - self._wire.env.now()

    def judged(self, answered: Answered) -> Answered:
        """The answer, or its refusal raised."""
        if answered.status < 400:
            return answered
        self._last = answered
        raise RefusedStatus(self._asked, answered)

    # ------------------------------------------------------------ the end

    def conclude(self, ended: Fresh | Over) -> Any:
        """The response, or the error raised, with what all attempts together say."""
        if isinstance(ended, Fresh):
            return self._answered_well(ended.value)
        error, tried = ended.error, self._tried(ended)
        self._saw(tried.verdict)
        if isinstance(error, RefusedStatus):
            if tried.mark:
                error.answered.mark(TRIED_HEADER, tried.mark)
            return error.answered.response
        tell(error, tried)
        raise error

    def _answered_well(self, answered: Answered) -> Any:
        self._well = not self._handed_on(answered)
        if not self._well:
            self._saw(MOVED)
        elif self._sighting is not None:
            self._sighting.answered = answered.status in DONE and answered.watch is None
        watched = self._slot is not None or self._sighting is not None
        if self._well and watched and answered.watch is not None:
            give_back = nothing if self._slot is None else _only_once(self._slot.give_back)
            answered.watch(give_back, partial(self._read_to_its_end, answered.status))
        return answered.response

    def _read_to_its_end(self, status: int) -> None:
        if self._sighting is not None:
            self._sighting.answered = status in DONE

    def _saw(self, verdict: Verdict) -> None:
        if self._sighting is not None:
            self._sighting.verdict = verdict

    def _handed_on(self, answered: Answered) -> bool:
        """Is the same request to go to another host's same place? Then nothing was done here."""
        if answered.status not in HANDED_ON:
            return False
        try:
            target = urlsplit(urljoin(self._asked.url, answered.headers.get("location", "")))
        except ValueError:  # it cannot be followed
            return False
        if unquote(target.path) != unquote(self._asked.path):
            return False
        self._moved = self._asks(target.query)
        return True

    def _tried(self, ended: Over) -> Tried:
        last = self._judge(ended.error)
        if last.done_before and not self._has_own_key():
            last = last.but(certainty=Certainty.AMBIGUOUS)
        verdict = ended.gave_up or (last if self._settles(last) else ended.but) or last
        return Tried(verdict, ended.attempts, ended.gave_up is not None)

    def _has_own_key(self) -> bool:
        """Did a key of this effect go with it: put in here, or read by the tool?"""
        if self._asked.method in REPEATABLE_METHODS or self._effect is None:
            return False
        return self._slot is not None or "key" in self._effect.used

    def _settles(self, last: Verdict) -> bool:
        """Does a refusal speak for the attempts before it, too? Under a key whose refusals are
        kept, a request that was carried out is not refused afterwards.
        """
        terms = None if self._effect is None else self._effect.terms
        return last.final and self._keyed and terms is not None and terms.stores_rejections


def _status(ended: Fresh | Over) -> int:
    return ended.value.status if isinstance(ended, Fresh) else 0


def effect_here() -> Effect | None:
    """The effect whose tool is running. A probe only looks: it has no key of its own."""
    effect = running.get()
    return None if effect is None or effect.terms is None else effect


def exchange(wire: ClientPolicy, asked: OutgoingRequest, send: Callable[[float], Answered]) -> Any:
    """Send it, again if need be. *send* is given the seconds that it may take."""
    with past_us(), ClientAttempts(wire, asked) as one:
        one.leaves()
        perform = Plain(one.store, lambda: one.judged(send(one.begin())))
        ended = drive(one.flow(), perform)
        if one.switches(ended):
            with one.handing_out(ended):
                one.leaves()
        return one.conclude(ended)


async def aexchange(
    wire: ClientPolicy, asked: OutgoingRequest, send: Callable[[float], Awaitable[Answered]]
) -> Any:
    with past_us(), ClientAttempts(wire, asked) as one:
        await one.aleaves()

        async def attempt() -> Answered:
            return one.judged(await send(one.begin()))

        ended = await adrive_call(one.flow(), AsyncPlain(one.store, attempt))
        if one.switches(ended):
            with one.handing_out(ended):
                await one.aleaves()
        return one.conclude(ended)


def asked_of(method: str, request: Any) -> OutgoingRequest:
    """A request that has its URL as text, its headers and its body."""
    url, body = urlsplit(request.url), whole(request.body)
    host = (url.hostname or "").lower()
    return OutgoingRequest(method, request.url, host, url.path, request.headers, body)


def whole(body: object) -> bytes | None:
    """All of a body that is in memory. None: it can be read once."""
    if isinstance(body, str):
        return body.encode()
    return b"" if body is None else body if isinstance(body, bytes) else None


def held(status: int, headers: Mapping[str, str]) -> bool:
    """Is the body read within the attempt? Errors are short, and others if they say so."""
    length = headers.get("content-length", "")
    return status >= 400 or status == 204 or (length.isdecimal() and int(length) <= HELD_MAX)


def nothing() -> None:
    """There is no number to give back, or no connection to let go."""


def _only_once(act: Callable[[], object]) -> Callable[[], object]:
    """A body read again breaks off again: the number may be that of the next request by then."""
    left = [act]
    return lambda: left.pop()() if left else None


@contextmanager
def broken(off: Callable[[], object]) -> Iterator[None]:
    """Around the reading of a body: calls *off* if it breaks off, not if the reader stops early."""
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException:
        off()
        raise
