"""Guards on sealed stores: what a reader of the store sees, and what callers are told when
something does not open.
"""

import asyncio
import inspect
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from effectonce import (
    CannotTell,
    Conflict,
    ContractViolation,
    Downstream,
    Found,
    Guard,
    InDoubt,
    Keyring,
    PartialSuccess,
    Rejected,
    ReplayedFailure,
    ResultUnavailable,
    State,
    current_effect,
)
from effectonce._core.codec import decode
from effectonce._core.ops import Attest, Claim, Complete, Confirm, Doubt, Find, Rearm, Refute
from effectonce.stores import base
from effectonce.stores import keyring as _keyring
from effectonce.stores.encrypted import Sealed
from effectonce.stores.memory import MemoryStore
from effectonce.stores.sqlite import SqliteStore
from tests.core.helpers import QUICK, Ledger, done, in_colour, named, tool
from tests.flaky import FlakyStore

OLD, NEW, SECRET = b"o" * 32, b"n" * 32, b"s" * 32
PRIVATE = "Jane Doe, 7 Elm Street"


def ring(*ids, **settings):
    keys = {"2026-05": OLD, "2026-11": NEW}
    return Keyring({key_id: keys[key_id] for key_id in ids or keys}, **settings)


def sealed_guard(store, keyring=None, **settings):
    return Guard(
        store, keyring=keyring or ring("2026-05"), secret=SECRET, **({"cache": 0} | settings)
    )


def payer(guard, ledger, **contract):
    """A tool that pays from *ledger*, and a call of it in its step."""
    pay = tool(guard, named("pay", lambda address: ledger.pay() | {"address": address}), **contract)

    def call(step="pay"):
        with guard.step("chat", step):
            return guard.call(pay, {"address": PRIVATE})

    return call


def spoil(store, key, **changes):
    """Somebody writes into the database."""
    record = store._records[key]
    store._records[key] = replace(record, **changes)


# ---------------------------------------------------------------- what a reader of the store sees


def files(folder):
    return b"".join(path.read_bytes() for path in folder.iterdir())


def everything(guard):
    """Write something private into every field that a record has for it."""

    def refuse(address):
        raise Rejected(f"{address} is unknown")

    def lose(address):
        raise TimeoutError(f"no answer about {address}")

    returning = tool(guard, named("returning", lambda address: {"sent to": address}))
    refusing, losing = tool(guard, named("refusing", refuse)), tool(guard, named("losing", lose))
    keys = []
    for step, function in [
        (str(n), f) for n, f in enumerate((returning, refusing, losing, losing, losing))
    ]:
        with guard.step("chat", step):
            keys.append(guard.call(function, {"address": PRIVATE}).effect.key)
    guard.confirm(keys[2], result=PRIVATE, by="ada", reason=f"seen at {PRIVATE}")
    guard.refute(keys[3], by="ada", reason=f"not seen at {PRIVATE}")
    guard.store.apply(Attest(keys[4], "late", PRIVATE.encode()))
    return keys


def test_nothing_private_is_in_the_files_of_a_sealed_store(tmp_path):
    clear, closed = tmp_path / "clear", tmp_path / "sealed"
    clear.mkdir()
    closed.mkdir()
    everything(Guard(SqliteStore(clear / "effects.db")))
    everything(sealed_guard(SqliteStore(closed / "effects.db")))

    assert files(clear).count(PRIVATE.encode()) >= 8
    for spelling in (PRIVATE, "Jane", "Elm Street"):
        assert spelling.encode() not in files(closed)
        # evidence is stored as hexadecimal text
        assert spelling.encode().hex().encode() not in files(closed)


def test_a_record_reads_back_as_if_it_had_never_been_sealed(tmp_path, clock):
    bare, sealed = (
        Guard(MemoryStore(clock=clock), secret=SECRET),
        sealed_guard(SqliteStore(tmp_path / "effects.db", clock=clock)),
    )

    for mine, its in zip(everything(bare), everything(sealed), strict=True):
        expected, got = bare.find(mine), sealed.find(its)
        names = ("request", "state", "outcome", "reason", "evidence", "settled_by")
        assert [getattr(got, name) for name in names] == [getattr(expected, name) for name in names]
    assert [r.reason for r in sealed.in_doubt()] == [r.reason for r in bare.in_doubt()]


def test_the_reason_of_a_doubt_is_told_to_the_next_caller():
    guard = sealed_guard(MemoryStore())
    call = payer(guard, Ledger(("after", TimeoutError("line 4 went dead"))))

    assert [call().status, call().status] == ["in_doubt", "in_doubt"]
    with pytest.raises(InDoubt, match="line 4 went dead"):
        call().unwrap()


def test_no_reason_is_no_reason():
    store = MemoryStore()
    sealed, guard = Sealed(store, ring()), Guard(MemoryStore())
    pay = tool(guard, named("pay", lambda address: None))
    with guard.step("chat", "pay"):
        request = guard._tool(pay).prepare((PRIVATE,), {}).request

    sealed.apply(Claim(request, "token", 30.0, dispatch=True))
    sealed.apply(Doubt(request.key, "token", 1, ""))

    assert (store._records[request.key].reason, sealed.apply(Find(request.key)).reason) == ("", "")


# ---------------------------------------------------------------- a store can do what it can,
# and nothing more


def test_a_sealed_store_has_exactly_what_its_store_has(tmp_path):
    protocols = [
        p
        for p in vars(base).values()
        if inspect.isclass(p) and getattr(p, "_is_runtime_protocol", False)
    ]
    memory, file = MemoryStore(), SqliteStore(tmp_path / "effects.db")

    known = {
        base.ExaminableStore,
        base.LocalStore,
        base.PausableStore,
        base.TransactionalStore,
    }
    assert set(protocols) == known, "seal what the new one carries, then list it here"
    for store in (memory, file):
        sealed = Sealed(store, ring())
        assert sealed.capabilities == store.capabilities
        assert [isinstance(sealed, p) for p in protocols] == [
            isinstance(store, p) for p in protocols
        ]


def test_a_sealed_store_closes_its_store(tmp_path):
    store = SqliteStore(tmp_path / "effects.db")
    sealed = Sealed(store, ring())
    sealed.apply(Find("k"))

    sealed.close()

    assert store._main is None


def test_a_replay_is_looked_up_without_a_claim_and_opened(tmp_path):
    guard = sealed_guard(SqliteStore(tmp_path / "effects.db"))
    seen = []
    pay = tool(guard, named("pay", lambda address: {"receipt": 1}))
    looking = guard._tool(pay)._look
    guard._tool(pay)._look = lambda request: seen.append(looking(request)) or seen[-1]

    with guard.step("chat", "pay"):
        assert [pay(PRIVATE), pay(PRIVATE), pay(PRIVATE)] == [{"receipt": 1}] * 3

    assert [decode(recorded.outcome).content for recorded in seen] == [{"receipt": 1}] * 2


def test_what_is_not_known_to_a_look_is_claimed(tmp_path):
    sealed = Sealed(SqliteStore(tmp_path / "effects.db"), ring())
    guard = Guard(sealed)
    pay = tool(guard, named("pay", lambda address: 1))

    with guard.step("chat", "pay"):
        assert sealed.look(guard._tool(pay).prepare((PRIVATE,), {}).request) is None


def test_a_tools_own_writes_commit_with_its_sealed_record(tmp_path):
    guard = sealed_guard(SqliteStore(tmp_path / "effects.db"))

    @guard.tool(kind="write", downstream="transaction")
    def book(note: str) -> dict:
        current_effect().connection.execute(
            "CREATE TABLE IF NOT EXISTS bookings (n INTEGER PRIMARY KEY)"
        )
        current_effect().connection.execute("INSERT INTO bookings DEFAULT VALUES")
        return {"note": note}

    @guard.tool(kind="write", downstream="transaction")
    async def abook(note: str) -> dict:
        current_effect().connection.execute("INSERT INTO bookings DEFAULT VALUES")
        return {"note": note}

    async def main():
        async with guard.step("chat", "abook"):
            return [await abook(PRIVATE), await abook(PRIVATE)]

    with guard.step("chat", "book"):
        assert [book(PRIVATE), book(PRIVATE)] == [{"note": PRIVATE}] * 2
    assert asyncio.run(main()) == [{"note": PRIVATE}] * 2

    with guard.store.transaction() as transaction:
        assert transaction.connection.execute("SELECT count(*) FROM bookings").fetchone() == (2,)
        assert not transaction.broken

    async def lent():
        async with guard.store.atransaction() as transaction:
            return transaction.broken

    assert asyncio.run(lent()) is False
    assert PRIVATE.encode() not in files(tmp_path)


# ---------------------------------------------------------------- what does not open


@pytest.mark.parametrize(
    ("script", "ended", "said"),
    [
        ([], ("succeeded", 1), "was done; its result cannot be read"),
        (
            [("before", Rejected("card declined"))],
            ("failed", 0),
            "failed earlier; what it said cannot be shown",
        ),
    ],
    ids=["success", "failure"],
)
def test_an_outcome_whose_key_is_lost_stays_one_and_is_never_run_again(script, ended, said):
    store, ledger = MemoryStore(), Ledger(*script)
    payer(sealed_guard(store, ring("2026-05")), ledger)()

    outcome = payer(sealed_guard(store, ring("2026-11")), ledger)()

    assert (outcome.status, ledger.effects, outcome.replayed) == (*ended, True)
    why = r": it was sealed with key '2026-05', which this process does not have\.\n"
    with pytest.raises(ResultUnavailable, match=said + why):
        outcome.unwrap()


def test_a_result_that_was_changed_or_swapped_in_the_store_is_not_believed():
    store, ledger = MemoryStore(), Ledger()
    call = payer(sealed_guard(store), ledger)
    one, two = call("one").effect.key, call("two").effect.key
    first, second = store._records[one].outcome, store._records[two].outcome
    arguments = store._records[one].request.arguments

    for forged in (first[:-1] + bytes([first[-1] ^ 1]), second, arguments, first[:20]):
        spoil(store, one, outcome=forged)
        with pytest.raises(
            ResultUnavailable, match="it was changed in the store, belongs to another effect"
        ):
            call("one").unwrap()

    spoil(store, one, outcome=first)
    assert call("one").value["receipt"] == 1
    assert ledger.effects == 2


def test_a_result_that_was_put_there_in_the_clear_is_not_believed():
    store, ledger = MemoryStore(), Ledger()
    key = payer(sealed_guard(store), ledger)().effect.key
    spoil(store, key, outcome=b'v1 ok {"receipt":999}')

    with pytest.raises(
        ResultUnavailable,
        match="it is not sealed, and anyone who can write to the store may have put it there",
    ):
        payer(sealed_guard(store), ledger)().unwrap()
    assert ledger.effects == 1


def test_what_was_written_before_encryption_is_read_until_the_day_that_was_named(monkeypatch):
    store, ledger = MemoryStore(), Ledger()
    before = payer(Guard(store, secret=SECRET, cache=0), ledger)()
    guard = sealed_guard(store, ring("2026-05", plaintext_until="2026-12-31"))

    monkeypatch.setattr(
        _keyring.time, "time", lambda: datetime(2026, 12, 31, 23, 59, tzinfo=UTC).timestamp()
    )
    after = payer(guard, ledger)()
    assert (after.value, after.replayed, ledger.effects) == (before.value, True, 1)

    monkeypatch.setattr(_keyring.time, "time", lambda: datetime(2027, 1, 1, tzinfo=UTC).timestamp())
    with pytest.raises(ResultUnavailable, match="it is not sealed"):
        payer(guard, ledger)().unwrap()
    assert ledger.effects == 1


def test_a_guard_without_a_keyring_says_that_the_result_is_sealed():
    store, ledger = MemoryStore(), Ledger(("ok", None), ("before", Rejected("no")))
    for step in ("paid", "refused"):
        payer(sealed_guard(store), ledger)(step)
    call = payer(Guard(store, secret=SECRET, cache=0), ledger)

    assert (call("paid").status, call("refused").status) == ("succeeded", "failed")
    with pytest.raises(ResultUnavailable, match="it is sealed, and this guard has no keyring"):
        call("paid").unwrap()
    assert ledger.effects == 1


def test_a_reason_or_evidence_that_does_not_open_says_so():
    store = MemoryStore()
    keys = everything(sealed_guard(store, ring("2026-05")))
    stranger = sealed_guard(store, ring("2026-11"))

    doubted = stranger.find(keys[4])
    assert "sealed with key '2026-05'" in doubted.reason
    assert "sealed with key '2026-05'" in decode(doubted.evidence[0].outcome).content["why"]
    spoil(store, keys[4], reason=store._records[keys[4]].reason + "?")
    assert "cannot be read" in stranger.find(keys[4]).reason
    assert sealed_guard(store).find(keys[4]).reason.startswith("a reason that cannot be read")


def test_arguments_that_do_not_open_cannot_be_asked_about(colour):
    store, asked = MemoryStore(), []

    def desk(keyring):
        guard = sealed_guard(store, keyring)

        def lose(address):
            raise TimeoutError

        def find(address):
            asked.append(address)
            return Found("receipt")

        pay = tool(guard, in_colour(colour, lose), name="pay", downstream="probe")
        pay.probe(in_colour(colour, find))
        return guard, pay

    def reconcile(guard):
        return done(guard.areconcile() if colour == "async" else guard.reconcile())

    sender = sealed_guard(store, ring("2026-05"))
    lost = tool(
        sender,
        named("pay", lambda address: (_ for _ in ()).throw(TimeoutError())),
        downstream="probe",
    )
    with sender.step("chat", "pay"), pytest.raises(InDoubt):
        lost(PRIVATE)

    assert reconcile(desk(ring("2026-11"))[0]).skipped == 1
    assert asked == []
    assert reconcile(desk(ring())[0]).settled == 1
    assert asked == [PRIVATE]


# ---------------------------------------------------------------- repeats and rotation


def test_every_write_of_an_outcome_can_be_repeated():
    store = FlakyStore()
    guard = sealed_guard(store)
    store.fail(Complete, "unacknowledged", times=3)
    call = payer(guard, Ledger())

    assert call().recorded
    record = next(iter(store.inner._records.values()))
    assert (record.state, record.evidence) == (State.COMPLETED, ())


@pytest.mark.parametrize("op", [Confirm, Refute])
def test_a_persons_word_can_be_repeated(op):
    store = MemoryStore()
    key = payer(sealed_guard(store), Ledger(("after", TimeoutError())))().effect.key
    settle = op(key, b"v1 ok 1", "ada", "seen")

    assert Sealed(store, ring()).apply(settle) == Sealed(store, ring()).apply(settle)
    assert sealed_guard(store).find(key).reason == "seen"


def test_a_persons_order_to_send_again_can_be_repeated():
    store, ledger = MemoryStore(), Ledger(("after", TimeoutError()), ("before", Rejected("?")))
    call = payer(sealed_guard(store), ledger, downstream=Downstream.key(window=3600))
    key = call().effect.key
    again = Rearm(key, "ada", f"{PRIVATE} says so")

    assert Sealed(store, ring()).apply(again) == Sealed(store, ring()).apply(again)
    assert PRIVATE not in store._records[key].reason
    assert call().status == "succeeded"


def test_a_completion_that_is_repeated_after_a_rotation_is_still_known():
    store, ledger = FlakyStore(), Ledger()
    guard = sealed_guard(store, ring("2026-05"))
    store.fail(Complete, "unacknowledged")
    apply = store.apply

    def rotate_before_the_repeat(op):
        if isinstance(op, Complete) and not store.faults:
            guard.keyring.add("2026-11", NEW, primary=True)
        return apply(op)

    store.apply = rotate_before_the_repeat
    outcome = payer(guard, ledger)()

    assert (outcome.status, outcome.value["receipt"], ledger.effects) == ("succeeded", 1, 1)


def test_old_and_new_guards_share_a_store_during_a_rotation(tmp_path):
    ledger = Ledger()

    def calls(ids, *steps):
        """What a process with these keys gets: whether it is a replay, and the receipt."""
        store = SqliteStore(tmp_path / "effects.db")
        call = payer(sealed_guard(store, ring(*ids)), ledger)
        outcomes = [call(step) for step in steps]
        store.close()
        return [(each.replayed, each.error or each.value["receipt"]) for each in outcomes]

    assert calls(["2026-05"], "a") == [(False, 1)]
    # both can read now
    assert calls(["2026-05", "2026-11"], "a", "b") == [(True, 1), (False, 2)]
    # the last is sealed with the new one
    assert calls(["2026-11", "2026-05"], "a", "b", "c") == [(True, 1), (True, 2), (False, 3)]
    # an older process that was told in time
    assert calls(["2026-05", "2026-11"], "c") == [(True, 3)]
    ((replayed, error),) = calls(["2026-05"], "c")
    assert replayed
    assert "sealed with key '2026-11', which this process does not have" in str(error)
    assert ledger.effects == 3


def test_a_key_that_is_added_while_running_opens_what_could_not_be_read_before(tmp_path):
    ledger = Ledger()
    new = sealed_guard(SqliteStore(tmp_path / "effects.db"), ring("2026-11"))
    payer(new, ledger)()
    old = sealed_guard(SqliteStore(tmp_path / "effects.db"), ring("2026-05"), cache=100)
    call = payer(old, ledger)

    for _ in range(3):  # the last two are looked up, not claimed; none of them is remembered
        assert isinstance(call().error, ResultUnavailable)
    old.keyring.add("2026-11", NEW)

    assert call().value["receipt"] == 1
    assert ledger.effects == 1


# ---------------------------------------------------------------- secrets and fingerprints


def test_a_keyring_without_a_secret_is_refused():
    with pytest.raises(
        ContractViolation,
        match=r"a keyring needs a secret: .* Guard\(\.\.\., keyring=\.\.\., secret=\.\.\.\)",
    ):
        Guard("memory://", keyring=ring())


def test_with_a_secret_other_arguments_are_still_a_conflict():
    guard = sealed_guard(MemoryStore())
    pay = tool(guard, named("pay", lambda invoice, amount: amount), identity=["invoice"])

    with guard.step("chat", "pay"):
        assert [pay(1, 5), pay(1, 5)] == [5, 5]
        with pytest.raises(Conflict):
            pay(1, 6)


def test_a_partial_success_and_a_failure_are_replayed_from_a_sealed_store():
    guard = sealed_guard(MemoryStore())

    def partly(address):
        raise PartialSuccess(
            "half of it", done={"sent to": address}, corrective_action="send the rest"
        )

    def refuse(address):
        raise Rejected(f"{address} is unknown")

    for function, error in ((partly, PartialSuccess), (refuse, ReplayedFailure)):
        again = tool(guard, named(function.__name__, function))
        with guard.step("chat", function.__name__):
            guard.call(again, {"address": PRIVATE})
            with pytest.raises(error) as caught:
                again(PRIVATE)
        assert PRIVATE in str(vars(caught.value))


def test_a_probe_on_a_sealed_store_settles_within_the_call():
    guard = sealed_guard(MemoryStore())

    @guard.tool(kind="write", downstream="probe", retry=QUICK)
    def pay(address: str):
        raise TimeoutError

    answers = [CannotTell("closed"), Found({"receipt": 1})]
    pay.probe(lambda address: answers.pop(0))

    with guard.step("chat", "pay"):
        with pytest.raises(InDoubt):
            pay(PRIVATE)
        assert pay(PRIVATE) == {"receipt": 1}
