"""Redriving: the same key, the same flow, one effect however often."""

import asyncio
import threading

import pytest

from effectonce import (
    CannotTell,
    ContractViolation,
    Downstream,
    Found,
    Guard,
    NotFound,
    NotSent,
    Rejected,
    State,
    StoreUnavailable,
)
from effectonce._core import ops
from effectonce._core.endings import Fenced, OutOfPatience, Replay
from effectonce.dead_letters._redriving import came_to
from effectonce.recovery.pace import Pace
from tests.dead_letters.shop import BY, QUICK, Shop
from tests.flaky import FlakyStore


def redriven(shop, key, **how):
    done = shop.letters.redrive(key, **BY, **how)
    assert done.effect.key == key
    return done.what


@pytest.mark.parametrize("tool", ["pay", "ship"])
def test_a_letter_is_redriven_with_its_arguments_under_its_key(shop, tool):
    key = shop.ask(getattr(shop, tool), "inv_1")
    shop.away = False

    done = shop.letters.redrive(key, **BY)

    assert (done.what, done.value, done.effect.tool, shop.effects) == (
        "done",
        {"receipt": 1},
        tool,
        [(tool, "inv_1")],
    )
    assert shop.letters.list() == ()
    with shop.guard.step("chat", "inv_1"):
        assert getattr(shop, tool)("inv_1") == {"receipt": 1}  # the caller's own retry is replayed
    assert len(shop.effects) == 1


def test_a_double_redrive_is_one_effect(shop):
    key = shop.ask(shop.pay, "inv_1")
    shop.away = False

    assert [redriven(shop, key) for _ in range(3)] == ["done", "replayed", "replayed"]
    assert shop.effects == [("pay", "inv_1")]


def test_who_asked_for_it_and_why_is_on_the_record(shop):
    key = shop.ask(shop.pay, "inv_1")

    assert redriven(shop, key) == "gave_up"

    letter = shop.letters.show(key)
    assert [(asked.by, asked.reason) for asked in letter.asked] == [("ada", "the bank is back")]
    assert [attempt.number for attempt in letter.attempts] == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("nameless", [{"by": "", "reason": "x"}, {"by": "ada", "reason": " "}])
def test_nobody_redrives_without_a_name_and_a_reason(shop, nameless):
    key = shop.ask(shop.pay, "inv_1")

    for redrive in (
        lambda: shop.letters.redrive(key, **nameless),
        lambda: shop.letters.redrive_all(dry_run=False, **nameless),
    ):
        with pytest.raises(ContractViolation, match="needs a name"):
            redrive()
    with pytest.raises(ContractViolation, match="needs a name"):
        asyncio.run(shop.letters.aredrive_all(dry_run=False, **nameless))


def test_what_is_in_doubt_stays_so_without_a_probe(shop):
    key = shop.ask(shop.mail, "inv_1")

    done = shop.letters.redrive(key, **BY)
    assert (done.what, shop.guard.find(key).state) == ("in_doubt", State.IN_DOUBT)
    assert "there is no probe to ask" in done.why


@pytest.mark.parametrize(
    ("answer", "what"),
    [(Found("rcpt_1"), "done"), (CannotTell(), "in_doubt"), (NotFound(), "in_doubt")],
    ids=repr,
)
def test_what_is_in_doubt_asks_its_probe(guard, answer, what):
    @guard.tool(kind="write", downstream="probe", retry=QUICK)
    def pay():
        raise TimeoutError("no answer")

    key = guard.call(pay, {}, key="a").effect.key
    pay.probe(lambda: answer)

    assert guard.dead_letters.redrive(key, **BY).what == what


def test_a_definite_failure_is_told_as_that(shop, guard):
    key = shop.ask(shop.refuse, "inv_1")
    assert redriven(shop, key) == "failed"

    refused = shop.ask(shop.pay, "inv_2")
    shop.away, shop.done = False, lambda *_: (_ for _ in ()).throw(Rejected("no such account"))
    done = shop.letters.redrive(refused, **BY)
    assert (done.what, "no such account" in done.why) == ("failed", True)


def test_a_letter_that_is_not_due_waits_unless_it_is_told_otherwise(guard, clock):
    away = [True]

    @guard.tool(kind="write", retry=QUICK)
    def pay():
        if away:
            away.pop()
            raise NotSent("busy", retry_after_s=7000)
        return "receipt"

    with pytest.raises(Exception, match="too late"):
        guard.call(pay, {}, key="a")
    (letter,) = guard.dead_letters.list()

    early = guard.dead_letters.redrive(letter.key, **BY)
    assert (early.what, early.why) == ("skipped", "it is not due for another 7000 s")
    assert guard.dead_letters.redrive_all()[0].what == "skipped"
    assert guard.dead_letters.redrive_all(early=True)[0].what == "would_run"
    clock.advance(7000)
    assert guard.dead_letters.redrive(letter.key, **BY).what == "done"


def test_what_cannot_be_redriven_here_says_why(shop, store, clock):
    key = shop.ask(shop.pay, "inv_1")
    elsewhere = Guard(store, cache=0)
    assert "no tool of this guard is called 'pay'" in elsewhere.dead_letters.redrive(key, **BY).why

    @elsewhere.tool(kind="write", name="pay", downstream=Downstream.key(window=3600))
    def other(invoice: str):
        raise AssertionError("it must not be called")

    assert "takes other arguments now" in elsewhere.dead_letters.redrive(key, **BY).why

    moved_on = Guard(store, cache=0)

    @moved_on.tool(kind="write", name="pay", downstream=Downstream.key(window=3600))
    def third(invoice: int, amount: int):
        raise AssertionError("it must not be called")

    assert "'invoice' does not fit" in moved_on.dead_letters.redrive(key, **BY).why
    assert shop.letters.redrive("0" * 40, **BY).why == "it is unknown to this store"
    store.apply(ops.Claim(shop.guard.find(key).request, "somebody", 30.0, dispatch=False))
    assert "in flight" in shop.letters.redrive(key, **BY).why
    # nothing was done, so nothing is noted
    assert "asked" not in str(shop.guard.find(key).evidence[-1].note)


def test_an_expired_effect_is_not_redriven(guard, clock):
    @guard.tool(kind="write", window=60)
    def pay():
        return 1

    key = guard.call(pay, {}, key="a").effect.key
    clock.advance(61)
    guard.sweep()

    assert guard.dead_letters.redrive(key, **BY).why == "its key has expired"


def test_a_latched_step_keeps_the_letter_back(shop, clock):
    """Another effect of its step may have happened."""
    with shop.guard.step("chat", "the step"):
        with pytest.raises(Exception, match="did not run"):
            shop.pay("inv_1")
        with pytest.raises(Exception, match="in doubt"):
            shop.mail("inv_1")
    letter = next(letter for letter in shop.letters.list() if letter.tool == "pay")
    shop.away = False

    done = shop.letters.redrive(letter.key, **BY)
    assert (done.what, done.why) == ("skipped", "mail of the same step was sent and has no outcome")
    assert shop.effects == []


def test_all_letters_of_a_kind_are_redriven_and_a_dry_run_comes_first(shop, clock):
    for n in range(5):
        shop.ask(shop.pay, f"inv_{n}")
        clock.advance(1)
    shop.ask(shop.mail, "inv_9")
    shop.away = False

    before = shop.letters.redrive_all()
    assert [done.what for done in before] == ["would_run"] * 5 + ["in_doubt"]
    assert (shop.effects, shop.letters.list()[0].asked) == ([], ())

    heard = []
    done = shop.letters.redrive_all(
        dry_run=False, per_s=None, tool="pay", limit=3, on_each=heard.append, **BY
    )
    assert [each.what for each in done] == ["done"] * 3
    assert heard == list(done)
    assert shop.effects == [("pay", "inv_0"), ("pay", "inv_1"), ("pay", "inv_2")]
    assert (
        len(shop.letters.redrive_all(dry_run=False, per_s=None, state="never_started", **BY)) == 2
    )
    assert [letter.tool for letter in shop.letters.list()] == ["mail"]


def test_what_is_skipped_does_not_keep_the_others_from_being_redriven(shop, clock):
    for n in range(150):
        shop.ask(shop.mail, f"inv_{n}")
    clock.advance(1)
    for n in range(3):
        shop.ask(shop.pay, f"late_{n}")
    shop.away = False

    assert [each.what for each in shop.letters.redrive_all(limit=2)].count("would_run") == 2
    done = shop.letters.redrive_all(dry_run=False, per_s=None, limit=2, **BY)
    assert [each.what for each in done] == ["in_doubt"] * 150 + ["done"] * 2
    assert len(shop.effects) == 2


def test_what_gives_up_again_is_tried_once_in_a_round_and_stays_a_letter(shop, clock):
    keys = []
    for n in range(3):
        keys.append(shop.ask(shop.pay, f"inv_{n}"))
        clock.advance(1)

    done = shop.letters.redrive_all(dry_run=False, per_s=None, **BY)

    assert [(each.effect.key, each.what) for each in done] == [(key, "gave_up") for key in keys]
    assert "NotSent" in done[0].why
    assert [letter.key for letter in shop.letters.list()] == keys


class Waits(threading.Event):
    """An event that notes how long somebody would have waited for it, and lets itself be set
    after some of that.
    """

    def __init__(self, until=None):
        super().__init__()
        self.waits, self.until = [], until

    def wait(self, timeout=None):
        self.waits.append(timeout)
        if len(self.waits) == self.until:
            self.set()
        return self.is_set()


def test_a_redrive_is_paced_and_can_be_stopped(shop, clock):
    for n in range(5):
        shop.ask(shop.pay, f"inv_{n}")
        clock.advance(1)
    shop.away, stop = False, Waits(until=2)

    done = shop.letters.redrive_all(dry_run=False, per_s=0.001, stop=stop, **BY)

    assert len(done) == len(stop.waits) == len(shop.effects) == 2
    assert 900 < stop.waits[0] <= 1000 < stop.waits[1] <= 2000  # no time passed in between
    assert len(shop.letters.list()) == 3


def test_what_is_skipped_costs_no_wait(shop, clock):
    shop.ask(shop.pay, "inv_1")
    stop = Waits()

    Guard(shop.guard.store).dead_letters.redrive_all(dry_run=False, stop=stop, **BY)
    assert stop.waits == []


def test_a_pace_without_a_limit_never_waits():
    assert Pace(None).next_s() == 0
    for wrong in (0, -1, float("nan")):  # the last would be no limit at all
        with pytest.raises(ContractViolation, match=f"per_s={wrong}"):
            Pace(wrong)


def test_async_letters_are_redriven_in_their_colour(shop, clock):
    async def ask(n):
        async with shop.guard.step("chat", n):
            with pytest.raises(Exception, match="did not run"):
                await shop.apay(f"inv_{n}")

    for n in range(3):
        asyncio.run(ask(n))
        clock.advance(1)
    key = shop.ask(shop.pay, "inv_9")
    letters = shop.letters.list(tool="apay")
    shop.away = False
    assert "use aredrive" in shop.letters.redrive(letters[0].key, **BY).why
    assert "use redrive" in asyncio.run(shop.letters.aredrive(key, **BY)).why

    async def main():
        dry = await shop.letters.aredrive_all(tool="apay")
        one = await shop.letters.aredrive(letters[0].key, **BY)
        heard, stop = [], asyncio.Event()
        rest = await shop.letters.aredrive_all(
            dry_run=False, per_s=None, limit=1, tool="apay", on_each=heard.append, **BY
        )
        stop.set()
        none = await shop.letters.aredrive_all(dry_run=False, per_s=None, stop=stop, **BY)
        again = await shop.letters.aredrive(letters[0].key, **BY)
        return dry, one, rest, heard, none, again

    dry, one, rest, heard, none, again = asyncio.run(main())
    assert [each.what for each in dry] == ["would_run"] * 3
    assert (one.what, one.value, [each.what for each in rest], heard == list(rest)) == (
        "done",
        {"receipt": 1},
        ["done"],
        True,
    )
    assert (none, again.what) == ((), "replayed")
    assert shop.effects == [("apay", "inv_0"), ("apay", "inv_1")]


def test_async_letters_are_listed_over_many_pages(shop, clock):
    for n in range(120):
        shop.ask(shop.pay, f"inv_{n}")

    done = asyncio.run(shop.letters.aredrive_all(limit=1000))
    assert len(done) == 120


@pytest.mark.parametrize("pauses", [0, 1, 2])
def test_two_operators_at_once_are_one_effect_each(shop, store, pauses):
    """The second comes while the tool of the first is running."""
    keys = [shop.ask(shop.pay, f"inv_{n}") for n in range(4)]
    shop.away, second = False, []
    plain = shop.done

    def meanwhile(tool, invoice):
        if len(second) < pauses:
            second.append(shop.letters.redrive_all(dry_run=False, per_s=None, **BY))
        return plain(tool, invoice)

    shop.done = meanwhile
    first = shop.letters.redrive_all(dry_run=False, per_s=None, **BY)

    assert sorted(shop.effects) == [("pay", f"inv_{n}") for n in range(4)]
    assert {each.what for each in first} <= {"done", "replayed"}
    assert [shop.guard.find(key).state for key in keys] == [State.COMPLETED] * 4


def test_an_operator_who_interrupts_stops(shop):
    key = shop.ask(shop.pay, "inv_1")
    shop.away, shop.done = False, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)

    with pytest.raises(KeyboardInterrupt):
        shop.letters.redrive_all(dry_run=False, per_s=None, **BY)
    assert shop.letters.show(key).effect_state == "in_doubt"


def test_a_store_that_goes_away_in_between_is_told(clock):
    store = FlakyStore(clock=clock)
    shop = Shop(Guard(store, cache=0))
    key = shop.ask(shop.pay, "inv_1")
    store.fail(ops.Claim, times=3)

    done = shop.letters.redrive(key, **BY)
    assert (done.what, done.why[:24]) == ("skipped", "the store did not answer")


def test_every_other_ending_has_its_words():
    assert came_to(OutOfPatience("the turn is over")) == ("gave_up", "the turn is over", None)
    for ending in (
        Fenced(1),
        ops.Busy(1.0),
        ops.Early("k"),
        ops.KeyExpired(1.0),
        ops.Mismatch("pay"),
    ):
        what, why, value = came_to(ending)
        assert (what, value, why != "") == ("skipped", None, True)
    unavailable = came_to(ops.Unavailable(StoreUnavailable("away")))
    assert unavailable == ("skipped", "the store did not answer: away", None)
    failed = Replay(ops.Recorded(State.FAILED, b"", 0.0, 0.0), coalesced=False)
    assert came_to(failed) == ("failed", "it failed for good", None)


def test_what_would_be_done_is_foreseen_in_both_colours_and_nothing_is_sent(shop):
    pay, doubt = shop.ask(shop.pay, "inv_1"), shop.ask(shop.mail, "inv_2")

    assert shop.letters.foresee(pay).what == "would_run"
    assert shop.letters.foresee(doubt).what == "in_doubt"
    assert shop.letters.foresee("0" * 40).what == "skipped"
    assert shop.effects == []
