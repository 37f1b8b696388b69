"""A declaration is checked, not believed: a tool that says it sends its key, and does not read
it, is not sent again.
"""

import functools
import logging
import threading

import pytest

from effectonce import (
    ContractViolation,
    Downstream,
    Found,
    Guard,
    InDoubt,
    NotSent,
    Rejected,
    State,
    current_effect,
)
from effectonce._core.guarantees import Capability
from tests.core.helpers import QUICK, done, in_colour, named, tool


def read_the_key():
    """In a function that only the tool of this file calls through a list: its code does not show
    it.
    """
    return current_effect().downstream_key


READ = [read_the_key]


class Bank:
    """A tool that pays, reads its key in those attempts that say so, and loses the answers of
    the first ones.
    """

    def __init__(self, guard, colour, *, reads=(), lost=2, error=TimeoutError, **contract):
        self.guard, self.reads, self.lost, self.error = guard, set(reads), lost, error
        self.paid = 0

        def pay():
            self.paid += 1
            if self.paid in self.reads:
                READ[0]()
            if self.paid <= self.lost:
                raise self.error
            return self.paid

        settings = {
            "kind": "irreversible",
            "downstream": "key",
            "accept_store_loss": True,
        } | contract
        self.tool = tool(guard, in_colour(colour, pay), name="pay", **settings)

    def call(self, step="pay"):
        with self.guard.step("chat", step):
            return done(self.tool())

    def record(self, step="pay"):
        with self.guard.step("chat", step):
            return self.guard.find(self.tool.explain().key)


def test_a_key_that_is_never_read_protects_nothing_so_a_lost_answer_is_in_doubt(guard, colour):
    bank = Bank(guard, colour)

    for _ in range(3):
        with pytest.raises(InDoubt) as raised:
            bank.call()

    assert bank.paid == 1
    assert "declares downstream='key' and did not read its key" in str(raised.value)
    assert bank.record().request.terms.downstream is Capability.NONE


def test_and_nobody_can_have_it_sent_again_under_a_key_that_was_not_sent(guard, colour):
    bank = Bank(guard, colour)
    with pytest.raises(InDoubt):
        bank.call()

    with pytest.raises(ContractViolation, match="could do it twice"):
        guard.retry(bank.record().request.key, by="ada", reason="try")

    guard.confirm(bank.record().request.key, result=1, by="ada", reason="the bank has it")
    assert bank.call() == 1


def test_a_tool_that_was_seen_to_read_its_key_may_fail_before_it_reads_it(guard, colour):
    bank = Bank(guard, colour, reads={1, 3}, lost=2)

    assert bank.call() == 3


def look_up(calls):
    calls.append("look up")
    if calls.count("look up") < 3:
        raise TimeoutError
    return current_effect().downstream_key


@pytest.mark.parametrize(
    "where", ["in its own code", "in a helper of its module", "below a decorator"]
)
def test_a_tool_whose_code_reads_its_key_may_look_something_up_first(guard, where):
    calls = []

    def own():
        calls.append("look up")
        if calls.count("look up") < 3:
            raise TimeoutError
        return current_effect().downstream_key

    def helped():
        return look_up(calls)

    @functools.wraps(own)
    def decorated(*args):
        return own(*args)

    pay = {
        "in its own code": own,
        "in a helper of its module": functools.partial(helped),
        "below a decorator": decorated,
    }

    with guard.step("chat", "pay"):
        assert tool(guard, pay[where], name="pay", downstream="key")().startswith("eo_")


def test_what_has_no_code_to_look_at_is_judged_by_what_it_does(guard):
    class Callable:
        def __call__(self):
            raise TimeoutError

    with guard.step("chat", "pay"), pytest.raises(InDoubt):
        tool(guard, Callable(), name="pay", downstream="key")()


def test_to_explain_another_tool_is_not_to_use_the_key(guard):
    other = tool(guard, named("mail", lambda: None))

    def pay():
        other.explain()
        raise TimeoutError

    with guard.step("chat", "pay"), pytest.raises(InDoubt):
        tool(guard, pay, downstream="key")()


def test_a_key_that_is_read_is_sent_again(guard, colour):
    bank = Bank(guard, colour, reads={1, 2, 3})

    assert bank.call() == 3


def test_an_error_that_proves_that_nothing_happened_needs_no_key(guard, colour):
    assert Bank(guard, colour, error=NotSent).call() == 3
    with pytest.raises(Rejected):
        Bank(Guard("memory://"), colour, error=Rejected).call()


def test_what_may_repeat_anyway_needs_no_key(guard, colour):
    assert Bank(guard, colour, kind="idempotent_write").call() == 3


def test_the_first_success_without_it_says_so_once(guard, colour, caplog):
    bank = Bank(guard, colour, lost=0)

    with caplog.at_level(logging.WARNING, "effectonce"):
        bank.call("one")
        bank.call("two")

    assert [
        r.getMessage().count("pay declares downstream='key' and never read its key")
        for r in caplog.records
    ] == [1]


def test_from_then_on_new_calls_rely_on_no_key_until_one_is_read(guard, colour):
    bank = Bank(guard, colour, reads={2}, lost=0)

    bank.call("one")
    bank.call("two")  # it was claimed without a key, and read it
    bank.call("three")

    downstreams = [bank.record(step).request.terms.downstream for step in ("one", "two", "three")]
    assert downstreams == [Capability.KEY, Capability.NONE, Capability.KEY]


def test_a_key_is_read_in_a_thread_that_was_given_the_context(guard):
    import contextvars

    calls = []

    def pay():
        context = contextvars.copy_context()
        reader = threading.Thread(
            target=context.run, args=(lambda: calls.append(current_effect().downstream_key),)
        )
        reader.start()
        reader.join()
        if len(calls) < 3:
            raise TimeoutError
        return "paid"

    with guard.step("chat", "pay"):
        assert tool(guard, pay, downstream="key")() == "paid"

    assert len(set(calls)) == 1


def test_a_guarded_call_inside_has_a_key_that_is_made_of_the_outer_one(guard):
    sent = []

    @guard.tool(kind="write", downstream="key", retry=QUICK)
    def mail():
        sent.append(current_effect().downstream_key)
        return "sent"

    def pay():
        mail()
        if current_effect().attempt < 3:
            raise TimeoutError
        return "paid"

    with guard.step("chat", "pay"):
        assert tool(guard, pay, downstream="key")() == "paid"

    assert len(sent) == 1


# ---------------------------------------------------------------- transaction

CONNECTION = [lambda: current_effect().connection]


@pytest.fixture
def sqlite(tmp_path):
    guard = Guard(f"sqlite:///{tmp_path / 'effects.db'}", cache=0)
    yield guard
    guard.close()


class Booking(Bank):
    def __init__(self, guard, colour, **script):
        super().__init__(guard, colour, kind="write", downstream="transaction", **script)


def test_a_transaction_that_was_not_used_undoes_nothing_so_a_lost_answer_is_in_doubt(
    sqlite, colour
):
    booking = Booking(sqlite, colour)

    for _ in range(3):
        with pytest.raises(InDoubt):
            booking.call()

    assert booking.paid == 1


def test_an_error_before_the_connection_is_used_is_only_an_error(sqlite, colour):
    booking = Booking(sqlite, colour, error=ValueError)

    with pytest.raises(ValueError):
        booking.call()

    assert sqlite.counts() == {State.CLAIMED: 1}


def test_a_tool_that_was_seen_to_use_its_connection_is_believed(sqlite):
    runs = []

    def book(n: int):
        runs.append(n)
        if n == 2 and runs.count(2) < 3:
            raise TimeoutError  # of a read, before it writes
        CONNECTION[0]().execute("CREATE TABLE IF NOT EXISTS booked (n)")
        return n

    booked = tool(sqlite, book, downstream="transaction")
    for n in (1, 2):
        with sqlite.step("chat", f"book {n}"):
            assert booked(n) == n


def test_the_first_success_outside_of_its_transaction_says_so(sqlite, colour, caplog):
    with caplog.at_level(logging.WARNING, "effectonce"):
        Booking(sqlite, colour, lost=0).call()

    assert "never used its connection" in caplog.text


def test_a_store_that_takes_the_record_away_meanwhile_leaves_the_doubt_with_the_caller(
    sqlite, monkeypatch
):
    from effectonce._core.ops import Dispatch, Refused

    booking, apply = Booking(sqlite, "sync"), sqlite.store.apply
    monkeypatch.setattr(
        sqlite.store, "apply", lambda op: Refused(None) if isinstance(op, Dispatch) else apply(op)
    )

    with pytest.raises(InDoubt):
        booking.call()


# ---------------------------------------------------------------- probe, read


def test_a_probe_that_was_never_registered_says_so_once(guard, colour, caplog):
    bank = Bank(guard, colour, lost=0, kind="write", downstream=Downstream.probe())

    with caplog.at_level(logging.WARNING, "effectonce"):
        bank.call("one")
        bank.call("two")

    assert [r.getMessage().count("@pay.probe") for r in caplog.records] == [1]


def test_a_probe_that_is_there_says_nothing(guard, caplog):
    bank = Bank(guard, "sync", lost=0, kind="write", downstream="probe")
    bank.tool.probe(lambda: Found(1))

    with caplog.at_level(logging.WARNING, "effectonce"):
        bank.call()

    assert caplog.text == ""


@pytest.mark.parametrize("downstream", ["key", "probe"])
def test_a_read_has_no_use_for_a_downstream(guard, caplog, downstream):
    with caplog.at_level(logging.WARNING, "effectonce"):
        guard.tool(kind="read", downstream=downstream)(named("look", lambda: 1))

    assert "is a read" in caplog.text
