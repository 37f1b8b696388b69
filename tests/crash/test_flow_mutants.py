"""A flow that is broken on purpose is caught: by the kill-at-every-op worlds, or by the fact
that its rule promises.
"""

import contextlib
import itertools

import pytest
from msgspec.structs import replace

from effectonce import EffectOnceError, Guard, Retry
from effectonce._core import call, ops
from effectonce._core.call import GuardedCall
from effectonce._core.classification.classify import Bucket, Certainty, Verdict
from effectonce._core.guarantees import Capability, Kind
from effectonce.stores.memory import MemoryStore
from tests.crash.test_kill_at_every_op import check, resume, worlds
from tests.flaky import FlakyStore

ORIGINAL = {
    name: getattr(GuardedCall, name)
    for name in ("_own", "_claim", "_failed", "_complete", "_dispatch", "_ambiguous")
}


def killed_everywhere(tmp_path):
    """The guarantee, killed at every op, for the downstreams that can break it."""
    for kind, capability in itertools.product(
        (Kind.WRITE, Kind.IRREVERSIBLE), (Capability.KEY, Capability.PROBE, Capability.NONE)
    ):
        for scenario, world in worlds(tmp_path, kind, capability, "sync"):
            check(world, scenario, resume(world))


def killed_with_separate_dispatch(tmp_path):
    for scenario, world in worlds(
        tmp_path, Kind.WRITE, Capability.NONE, "sync", separate_dispatch=True
    ):
        check(world, scenario, resume(world))


def store_down_sends_nothing(tmp_path):
    store, calls = FlakyStore(), []
    guard = Guard(store, cache=0)
    pay = guard.tool(kind="write", name="pay")(lambda: calls.append(1))
    store.fail(ops.Claim, times=3)
    with guard.step("chat", "pay"), contextlib.suppress(EffectOnceError):
        pay()
    assert calls == []


def an_effect_that_cannot_be_stored_is_done(tmp_path):
    guard, calls = Guard(MemoryStore(), cache=0), []
    pay = guard.tool(kind="write", name="pay", retry=Retry(attempts=3, base_s=0, cap_s=0))(
        lambda: calls.append(1) or object()
    )
    with guard.step("chat", "pay"):
        for _ in range(2):
            with contextlib.suppress(Exception):
                pay()
    assert len(calls) == 1
    assert guard.counts() == {"completed": 1}


# ---------------------------------------------------------------- the sabotage


def sends_without_dispatching(self, *, dispatched):  # rule 3
    if not dispatched:
        dispatched = True
    return (yield from ORIGINAL["_own"](self, dispatched=dispatched))


def takes_ambiguous_for_rejected(self, error, seen):  # rule 4
    _believes(self, Verdict(Bucket.DECLINED, Certainty.REJECTED))
    return (yield from ORIGINAL["_failed"](self, error, seen))


def takes_ambiguous_for_not_sent(self, error, seen):  # rule 4
    _believes(self, Verdict(Bucket.UNREACHABLE, Certainty.NOT_SENT))
    return (yield from ORIGINAL["_failed"](self, error, seen))


def re_sends_without_a_key(self, error, verdict, delay_s):  # rule 4
    answer = yield ops.Invoke(
        self.key, self.token, self.epoch, self.patience.attempt, self.patience.give_up_at
    )
    if isinstance(answer, ops.Ok):
        return (yield from self._complete(answer.value))
    return (yield from ORIGINAL["_ambiguous"](self, error, verdict, delay_s))


def goes_on_without_a_claim(self):  # rule 10
    reply, waited = yield from ORIGINAL["_claim"](self)
    if isinstance(reply, ops.Unavailable):
        return ops.Held(1, 1, dispatched=True), waited
    return reply, waited


# rule 3: "pending beyond its time-out: treat as failed, proceed to execute"
def executes_past_the_lease(self):
    reply, waited = yield from ORIGINAL["_claim"](self)
    if isinstance(reply, ops.Doubtful):
        return ops.Held(9, 1, dispatched=True), waited
    return reply, waited


def fails_what_it_cannot_store(self, value, by=""):  # rule 11
    if b"unavailable" in self.plan.encode(value):
        yield from ops.Fail(self.key, self.token, self.epoch, b"v1 error {}")
        raise TypeError("not serialisable")
    return (yield from ORIGINAL["_complete"](self, value, by))


def forgets_the_outcome(self, value, by=""):  # a completion that is never written
    yield from ops.Unsend(self.key, self.token, self.epoch, self.sends, 0)
    return call.Fresh(value)


def _believes(call, verdict):
    call.plan = replace(call.plan, retrying=replace(call.plan.retrying, classify=lambda _: verdict))


FACTS = (store_down_sends_nothing, an_effect_that_cannot_be_stored_is_done)
MUTANTS = [
    ("_own", sends_without_dispatching, killed_with_separate_dispatch),
    ("_failed", takes_ambiguous_for_rejected, killed_everywhere),
    ("_failed", takes_ambiguous_for_not_sent, killed_everywhere),
    ("_ambiguous", re_sends_without_a_key, killed_everywhere),
    ("_claim", goes_on_without_a_claim, store_down_sends_nothing),
    ("_claim", executes_past_the_lease, killed_everywhere),
    ("_complete", fails_what_it_cannot_store, an_effect_that_cannot_be_stored_is_done),
    ("_complete", forgets_the_outcome, killed_everywhere),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("method", "sabotage", "test"), MUTANTS, ids=lambda m: getattr(m, "__name__", m)
)
def test_a_broken_flow_is_caught(method, sabotage, test, monkeypatch, tmp_path):
    monkeypatch.setattr(GuardedCall, method, sabotage)
    with pytest.raises((AssertionError, RecursionError)):
        test(tmp_path)


@pytest.mark.parametrize("test", FACTS)
def test_the_sound_flow_passes(test, tmp_path):
    test(tmp_path)
