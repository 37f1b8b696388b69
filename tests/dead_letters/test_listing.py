"""What is a dead letter, what it shows, and that none is missed."""

import pytest

from effectonce import ContractViolation, Guard, Keyring, NotSent, State
from effectonce._core import ops
from effectonce.stores.memory import MemoryStore
from tests.dead_letters.shop import BY, QUICK, Shop


def test_a_letter_shows_everything_that_is_known(shop, clock):
    key = shop.ask(shop.pay, "inv_1")
    clock.advance(60)

    (letter,) = shop.letters.list()

    assert (letter.key, letter.tool, letter.tenant, letter.scope, letter.step) == (
        key,
        "pay",
        "main",
        "chat",
        "inv_1",
    )
    assert letter.reference == f"eff_{key[-12:]}"
    assert (letter.effect_state, letter.gave_up) == ("never_started", True)
    assert letter.arguments == {"invoice": "inv_1", "amount": 1}
    assert [(a.number, a.error, a.message, a.certainty) for a in letter.attempts] == [
        (n, "NotSent", "no connection for inv_1", "not_sent") for n in (1, 2, 3)
    ]
    assert (letter.error, letter.bucket) == ("NotSent", "unknown")
    assert (letter.given_up_at, letter.age_s, letter.not_before) == (clock() - 60, 60, None)


@pytest.mark.parametrize(
    ("tool", "effect_state"),
    [("pay", "never_started"), ("ship", "in_doubt"), ("mail", "in_doubt")],
    ids=str,
)
def test_a_letter_says_whether_its_effect_may_have_happened(shop, tool, effect_state):
    shop.ask(getattr(shop, tool), "inv_1")

    (letter,) = shop.letters.list()
    assert (letter.tool, letter.effect_state) == (tool, effect_state)


def test_what_has_an_outcome_is_no_letter(shop):
    shop.away = False
    key = shop.ask(shop.pay, "inv_1")

    assert shop.letters.list(failed=True) == ()
    assert (
        shop.letters.show(key).effect_state
        == shop.letters.show(f"eff_{key[-12:]}").effect_state
        == "done"
    )


def test_definite_failures_are_shown_when_they_are_asked_for(shop):
    shop.ask(shop.refuse, "inv_1")

    assert shop.letters.list() == ()
    (letter,) = shop.letters.list(failed=True)
    assert (letter.effect_state, letter.error, letter.last.message, letter.last.certainty) == (
        "failed",
        "Rejected",
        "no such account",
        "rejected",
    )
    assert shop.letters.list(state="failed") == (letter,)


def test_a_delay_is_told_as_a_time(guard, clock):
    @guard.tool(kind="write", retry=QUICK)
    def pay():
        raise NotSent("busy", retry_after_s=7000)

    with pytest.raises(Exception, match="too late"):
        guard.call(pay, {}, key="a")

    (letter,) = guard.dead_letters.list()
    assert letter.not_before == clock() + 7000


def test_what_is_in_flight_is_no_letter(shop, store):
    key = shop.ask(shop.pay, "inv_1")
    store.apply(ops.Claim(shop.guard.find(key).request, "somebody", 30.0, dispatch=True))

    assert shop.letters.list() == ()


def test_what_its_owner_abandoned_is_a_letter_after_a_time_of_grace(shop, store, clock):
    """A process was killed: nobody said anything."""
    with shop.guard.step("chat", "inv_1"):
        request = shop.guard._tool(shop.pay).prepare(("inv_1",), {}).request
    store.apply(ops.Claim(request, "crashed", 30.0, dispatch=True))

    clock.advance(30 + 299)
    assert shop.letters.list() == ()
    clock.advance(1)
    (letter,) = shop.letters.list()
    assert (letter.gave_up, letter.attempts, letter.error, letter.effect_state) == (
        False,
        (),
        "",
        "in_doubt",
    )
    assert letter.given_up_at == clock() - 300


def test_letters_are_filtered(shop, clock):
    for tool in (shop.pay, shop.ship, shop.mail):
        shop.ask(tool, f"of {tool.__name__}")
    clock.advance(100)
    shop.ask(shop.pay, "late", tenant="acme")

    def tools(**wanted):
        return [letter.tool for letter in shop.letters.list(**wanted)]

    assert sorted(tools()) == ["mail", "pay", "pay", "ship"]
    assert tools(tool="ship") == ["ship"]
    assert tools(error="NotSent") == ["pay", "pay"]
    assert sorted(tools(bucket="no_answer")) == ["mail", "ship"]
    assert tools(state="never_started") == ["pay", "pay"]
    assert sorted(tools(older_than_s=100)) == ["mail", "pay", "ship"]
    assert tools(tenant="acme") == ["pay"]
    assert tools(tool="pay", tenant="main") == ["pay"]
    with pytest.raises(TypeError):
        shop.letters.list(colour="red")


@pytest.mark.parametrize(
    "wanted", [{"state": "indoubt"}, {"bucket": "timeout"}, {"limit": 0}], ids=str
)
def test_a_word_that_no_letter_has_is_refused(shop, wanted):
    with pytest.raises(ContractViolation):
        shop.letters.list(**wanted)


def test_pages_show_each_letter_once_and_drop_none(shop, clock):
    keys = []
    for n in range(250):
        keys.append(shop.ask((shop.pay, shop.ship, shop.mail)[n % 3], f"inv_{n}"))
        clock.advance(1)

    seen, after = [], (0.0, "")
    while page := shop.letters.list(limit=7, after=after):
        seen += [letter.key for letter in page]
        after = page[-1].cursor

    assert seen == keys
    assert [letter.key for letter in shop.letters.list(limit=1000)] == keys
    assert len(shop.letters.list(limit=1000, tool="mail")) == 83


def test_live_claims_between_letters_hide_none(shop, store, clock):
    """More of them than one page of the store holds."""
    with shop.guard.step("chat", "inv_0"):
        request = shop.guard._tool(shop.pay).prepare(("inv_0",), {}).request
    for n in range(150):
        store.apply(ops.Claim(_other(request, n), "alive", 3600, dispatch=False))
        clock.advance(1)
    key = shop.ask(shop.pay, "inv_1")

    assert [letter.key for letter in shop.letters.list()] == [key]


def _other(request, n):
    return ops.Request(f"{n:040d}", request.fingerprint, request.terms, request.tenant)


def test_groups_tell_trouble_apart(shop, clock):
    for n in range(3):
        shop.ask(shop.pay, f"inv_{n}")
        clock.advance(10)
    shop.ask(shop.mail, "inv_9")

    first, second = shop.letters.groups()
    assert (first.tool, first.error, first.bucket, first.count) == ("pay", "NotSent", "unknown", 3)
    assert (first.newest - first.oldest, first.sample.step) == (20, "inv_0")
    assert (second.tool, second.error, second.count) == ("mail", "TimeoutError", 1)

    spread = shop.letters.distribution()
    assert (spread.total, spread.tools, spread.errors) == (
        4,
        {"pay": 3, "mail": 1},
        {"NotSent": 3, "TimeoutError": 1},
    )
    assert (spread.buckets, spread.states) == (
        {"unknown": 3, "no_answer": 1},
        {"never_started": 3, "in_doubt": 1},
    )


def test_counting_letters_looks_once_for_each_state_that_has_none():
    """A store has no index for what is claimed or sent: each page of it may be a look at every
    record there is.
    """
    browsed = []

    class Counting(MemoryStore):
        def apply(self, op, /):
            browsed.extend([op.state] if isinstance(op, ops.Browse) else [])
            return super().apply(op)

    guard = Guard(Counting())

    @guard.tool(kind="write", retry=QUICK)
    def mail(n: int):
        raise TimeoutError

    for n in range(250):
        with guard.step("chat", n):
            guard.call(mail, {"n": n})
    groups = guard.dead_letters.groups()

    assert [group.count for group in groups] == [guard.dead_letters.distribution().total] == [250]
    assert browsed.count(State.CLAIMED) == browsed.count(State.DISPATCHED) == 2
    # two pages each time: each is twice as large as the one before
    assert browsed.count(State.IN_DOUBT) == 4


def test_a_letter_is_found_by_its_key_and_by_its_reference(shop):
    key = shop.ask(shop.pay, "inv_1")

    assert shop.letters.show(key) == shop.letters.show(f"eff_{key[-12:]}") == shop.letters.list()[0]
    assert shop.letters.show("0" * 40) is None
    assert shop.letters.show("eff_000000000000") is None


def test_a_reference_that_two_effects_share_is_refused(shop, store):
    key = shop.ask(shop.pay, "inv_1")
    request = shop.guard.find(key).request
    store.apply(
        ops.Claim(ops.Request(f"x{key[1:]}", "?", request.terms, "main"), "t", 0.0, dispatch=True)
    )
    store.apply(ops.Doubt(f"x{key[1:]}", "t", 1, "?"))

    with pytest.raises(ContractViolation, match="stands for several effects"):
        shop.letters.show(f"eff_{key[-12:]}")


def test_a_letter_of_a_tool_that_is_not_here_is_shown_all_the_same(shop, store):
    shop.ask(shop.pay, "inv_1")

    (letter,) = Guard(store).dead_letters.list()
    assert (letter.tool, letter.arguments) == ("pay", {"invoice": "inv_1", "amount": 1})


def test_redacted_arguments_stay_redacted(store):
    guard = Guard(store, cache=0, secret=b"s" * 32)

    @guard.tool(kind="write", retry=QUICK, redact=["card"])
    def pay(card: str, amount: int):
        raise NotSent("no connection")

    with pytest.raises(Exception, match="no connection"):
        guard.call(pay, {"card": "4111", "amount": 5}, key="a")

    (letter,) = guard.dead_letters.list()
    assert letter.arguments == {"card": "[redacted]", "amount": 5}
    (redriven,) = guard.dead_letters.redrive_all(dry_run=False, per_s=None, **BY)
    assert (redriven.what, redriven.why) == (
        "skipped",
        "it cannot be sent again from here: its arguments were redacted",
    )


def test_a_sealed_letter_is_read_with_its_keyring_and_told_as_unreadable_without(clock):
    store = MemoryStore(clock=clock)
    ring = Keyring({"2026-11": b"n" * 32})
    shop = Shop(Guard(store, cache=0, secret=b"s" * 32, keyring=ring))
    shop.ask(shop.pay, "inv_1")

    (letter,) = shop.letters.list()
    assert (letter.arguments["invoice"], letter.last.message) == (
        "inv_1",
        "no connection for inv_1",
    )
    (closed,) = Guard(store).dead_letters.list()
    assert (closed.arguments, closed.gave_up, closed.last.message) == (
        None,
        True,
        "what it said cannot be read",
    )
    assert "sealed" in closed.unreadable
    (lost,) = Guard(
        store, secret=b"s" * 32, keyring=Keyring({"2027-01": b"o" * 32})
    ).dead_letters.list()
    assert (lost.arguments, lost.gave_up) == (None, True)
    assert "2026-11" in lost.unreadable


def test_arguments_that_could_not_be_stored_are_told(guard):
    class Thing:
        pass

    @guard.tool(kind="write", retry=QUICK, volatile=["thing"])
    def pay(thing):
        raise NotSent

    with pytest.raises(Exception, match="did not run"):
        guard.call(pay, {"thing": Thing()}, key="a")

    (letter,) = guard.dead_letters.list()
    assert letter.arguments == {"thing": "[not stored: a Thing]"}


def test_a_late_result_stays_attached_and_visible(shop):
    key = shop.ask(shop.mail, "inv_1")
    shop.guard.store.apply(
        ops.Attest(key, "an owner that had lost its lease reports success", b'v1 ok "rcpt_1"')
    )

    (letter,) = shop.letters.list()
    assert [(late.note, late.outcome) for late in letter.late_results] == [
        ("an owner that had lost its lease reports success", b'v1 ok "rcpt_1"')
    ]
    shop.guard.refute(key, by="ada", reason="not on the statement")
    assert shop.letters.show(key).late_results == letter.late_results


def test_a_settled_failure_says_by_whom(shop):
    key = shop.ask(shop.mail, "inv_1")
    shop.guard.refute(key, by="ada", reason="not on the statement")

    letter = shop.letters.show(key)
    assert (letter.record.settled_by, letter.reason, letter.record.state) == (
        "ada",
        "not on the statement",
        State.FAILED,
    )
