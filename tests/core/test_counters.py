"""What effectonce was worth, as stores count it: exact over processes, and never too much."""

import asyncio
import subprocess
import sys
import threading

import pytest

from effectonce import (
    Conflict,
    ContractViolation,
    Downstream,
    Found,
    Guard,
    InDoubt,
    InFlight,
    Keyring,
    NotFound,
    Retry,
    StoreUnavailable,
    current_effect,
)
from effectonce._core import counters as fields
from effectonce._core.counters import (
    Addition,
    CountedDay,
    added,
    cell_of,
    counted_days,
    plus,
    read_day,
)
from effectonce._core.ops import Cell, ReadCell, WriteCell
from effectonce._drivers import drive
from effectonce._runtime import counters
from effectonce._runtime.counters import Counters, days_of
from effectonce.stores import open_store
from effectonce.stores.memory import MemoryStore
from effectonce.testing.bank import Bank
from tests.core.examples import two_tiers
from tests.observe.counting import CALLS
from tests.servers.redis import Server

DAY_S = 86_400.0


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/effects.db"
    elif request.param == "postgres":
        yield request.getfixturevalue("database")
    else:
        server = Server(tmp_path / "redis", fsync="always")
        yield server.url
        server.stop()


def started(url, bank, number, how):
    command = [sys.executable, "-m", "tests.observe.counting", url, bank.port, number, how]
    return subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True)


def report_of(url):
    guard = Guard(url)
    try:
        return guard.report().total
    finally:
        guard.close()


def counted(guard):
    """What is not 0."""
    total = guard.report().total
    return {name: getattr(total, name) for name in fields.FIELDS if getattr(total, name)}


# ---------------------------------------------------------------- processes


@two_tiers(4, 16)
def test_what_many_processes_count_at_once_is_all_there(url, tmp_path, number):
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        processes = [started(url, bank, each, "calls") for each in range(number)]
        for process in processes:
            process.communicate(timeout=300)
        ledger = len(bank.ledger())

    total = report_of(url)
    assert {process.returncode for process in processes} == {0}
    assert total.landed == total.replayed == ledger == number * CALLS


def test_a_fork_adds_only_what_it_counted_itself(url, tmp_path):
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        process = started(url, bank, 0, "forks")
        process.communicate(timeout=120)

    assert process.returncode == 0
    assert (total := report_of(url)).landed == 2 * CALLS
    assert total.replayed == 2 * CALLS


def test_killed_while_it_counts_the_figures_are_never_above_the_banks(url, tmp_path):
    """Only what was counted after the last addition is lost."""
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        for number in range(4):
            before, stop = report_of(url).landed, None
            process = started(url, bank, number, "forever")
            for line in process.stdout:
                if stop is None and int(line) % 10 == 0 and report_of(url).landed > before:
                    stop = int(line) + 3 * number  # somewhere in the next addition
                if stop is not None and int(line) >= stop:
                    break
            process.kill()
            process.communicate()
            total, ledger = report_of(url), len(bank.ledger())

            assert before < total.landed <= ledger
            assert 0 <= total.replayed <= ledger


def pay_once(guard):
    """Call a tool in its step: the first call pays, and each other one is a repeat."""
    if "pay" not in guard._tools:
        guard.tool(kind="write", name="pay")(lambda: "paid")
    with guard.step("chat", "pay"):
        return guard.call("pay", {}).unwrap()


# ---------------------------------------------------------------- what is counted


@pytest.fixture
def paying():
    guard, calls = Guard("memory://"), []

    @guard.tool(kind="write", downstream=Downstream.probe(), wait_s=0, retry=Retry(attempts=1))
    def pay(invoice: str, amount: int = 1) -> str:
        calls.append(invoice)
        if invoice == "lost":
            raise TimeoutError("no answer")
        return "paid"

    answers = {}

    @pay.probe
    def ask(invoice: str, amount: int = 1):
        return answers.get(invoice, NotFound())

    def call(invoice, amount=1, tenant="main"):
        with guard.step("chat", invoice, tenant=tenant):
            return guard.call(pay, {"invoice": invoice, "amount": amount})

    return guard, call, answers


def test_a_repeated_call_is_a_duplicate_prevented(paying):
    guard, call, _ = paying
    call("a")
    call("a")
    call("a")
    call("b")

    assert counted(guard) == {"landed": 2, "replayed": 2}
    assert guard.report().total.prevented == 2


def test_a_call_with_other_arguments_is_a_conflict_and_no_duplicate():
    guard = Guard("memory://")

    @guard.tool(kind="write", identity=["invoice"])
    def pay(invoice: str, amount: int) -> str:
        return "paid"

    with guard.step("chat", "pay"):
        pay("a", 1)
        with pytest.raises(Conflict):
            pay("a", 2)

    assert counted(guard) == {"landed": 1, "conflicts": 1}


def test_a_call_that_joins_another_one_and_one_that_does_not_wait():
    guard, begun, end = Guard("memory://"), threading.Event(), threading.Event()

    def run():
        begun.set()
        end.wait()
        return "paid"

    patient = guard.tool(kind="write", name="patient")(run)
    hasty = guard.tool(kind="write", name="hasty", wait_s=0)(run)

    def pay(tool):
        with guard.step("chat", tool.contract.name):
            tool()

    for tool in (patient, hasty):
        begun.clear()
        end.clear()
        first = threading.Thread(target=pay, args=(tool,))
        first.start()
        begun.wait()
        if tool is hasty:
            with pytest.raises(InFlight):
                pay(tool)
        second = threading.Thread(target=pay, args=(tool,))
        if tool is patient:
            second.start()
            waits_for_the_first(guard)
        end.set()
        first.join()
        if tool is patient:
            second.join()

    assert counted(guard) == {"landed": 2, "joined": 1, "refused_running": 1}


def waits_for_the_first(guard):
    """A second caller is told to wait: seen when the store was asked again."""
    asked, plain = threading.Semaphore(0), guard.store.apply

    def apply(op, /):
        reply = plain(op)
        if type(reply).__name__ == "Busy":
            asked.release()
        return reply

    guard.store.apply = apply
    asked.acquire()


def test_a_doubt_its_refused_repetition_and_how_a_person_settled_it(paying):
    guard, call, _ = paying
    keys = []
    for _ in range(3):
        try:
            keys.append(call("lost").effect.key)
        except InDoubt as error:
            keys.append(error.effect.key)
    guard.confirm(keys[0], result="paid", by="ada", reason="it is in the ledger")

    assert counted(guard) == {
        "landed": 1,
        "refused_in_doubt": 2,
        "doubts": 1,
        "person_happened": 1,
    } | {name: number for name, number in counted(guard).items() if name == "settle_ms"}
    assert sum(guard.report().total.settle_times) == 1
    assert guard.report().total.settled_within_s(0.5) == 1.0


@pytest.mark.parametrize("later", [False, True])
def test_a_doubt_that_the_probe_settles_in_the_same_call_or_later_is_one(paying, later):
    guard, call, answers = paying
    if later:
        call("lost")
    answers["lost"] = Found("paid")
    if later:
        guard.reconcile()
    else:
        call("lost")
    found = counted(guard)
    found.pop("settle_ms", 0)

    assert found == {"landed": 1, "doubts": 1, "probe_happened": 1}


def test_an_answer_that_was_lost_is_sent_again_under_its_key_and_counts_once():
    guard, answers = Guard("memory://"), iter([TimeoutError("no answer"), None])

    @guard.tool(kind="write", downstream="key", retry=Retry(attempts=2, base_s=0, cap_s=0))
    def pay() -> str:
        _ = current_effect().downstream_key
        answer = next(answers)
        if answer is not None:
            raise answer
        return "paid"

    with guard.step("chat", "pay"):
        pay()

    assert counted(guard) == {"landed": 1, "resent": 1}


def test_reads_and_runs_of_workflows_are_not_effects_and_steps_are():
    guard = Guard("memory://")
    read = guard.tool(kind="read", name="read")(lambda: 1)
    step = guard.tool(kind="write", name="step")(lambda: 1)

    @guard.workflow
    def order(run, number: int):
        return run.step("charge", step)

    read()
    order(1)
    order(1)

    assert counted(guard) == {"landed": 1}
    assert list(guard.report().tools) == ["step"]


def test_async_calls_count_and_are_added_on_their_loop(monkeypatch):
    store, added_by, written = MemoryStore(), [], asyncio.Event()

    class Noticing:
        capabilities = store.capabilities
        apply = store.apply
        close = store.close

        async def aapply(self, op, /):
            if isinstance(op, WriteCell):
                added_by.append(threading.current_thread())
                written.set()
            return store.apply(op)

    monkeypatch.setattr(counters, "EVERY_S", 0.01)
    monkeypatch.setattr(counters, "THREAD", counters.CounterThread())
    guard = Guard(Noticing())

    @guard.tool(kind="write")
    async def pay() -> str:
        return "paid"

    async def main():
        async with guard.step("chat", "pay"):
            await pay()
        await asyncio.wait_for(written.wait(), 60)

    asyncio.run(main())

    assert added_by == [threading.current_thread()]
    assert counted(guard) == {"landed": 1}


def test_a_loop_that_has_just_begun_is_not_given_a_task_while_it_ends(monkeypatch):
    """It says "Task was destroyed but it is pending!" of one that comes as it closes."""
    thread, naps, added_at = counters.CounterThread(), [], []

    class Counting:
        def due(self):
            added_at.append(len(naps))

    short, later = Counting(), Counting()

    def sleep(seconds):
        naps.append(seconds)
        if len(naps) == 2:
            thread.add(later)

    monkeypatch.setattr(counters.time, "sleep", sleep)
    thread._running = True  # this one
    thread.add(short)
    thread._live()

    assert added_at == [2, 3]
    assert naps == [counters.EVERY_S] * 4
    assert not thread._running


def test_tenants_and_tools_are_counted_apart(paying):
    guard, call, _ = paying
    call("a", tenant="acme")
    call("a", tenant="acme")
    call("a", tenant="beta")

    assert guard.report().tenants["acme"].prevented == 1
    assert guard.report(tenant="beta").total.landed == 1
    assert guard.report(tool="other").total.landed == 0


# ---------------------------------------------------------------- the store


def addition(number=1, writer="a", rows=None):
    return Addition("2026-11-18", writer, number, rows or {("pay", "main"): {0: 1}})


def day_in(store):
    return read_day(store.apply(ReadCell(cell_of("2026-11-18"))).value)


class Losing:
    """A store whose next acknowledgement of a write is lost."""

    def __init__(self, store):
        self._store, self.lost = store, 0

    def __call__(self, op, /):
        reply = self._store.apply(op)
        if isinstance(op, WriteCell) and not self.lost:
            self.lost += 1
            raise StoreUnavailable("the connection broke")
        return reply


def test_an_addition_whose_acknowledgement_was_lost_is_not_added_twice():
    store, more = MemoryStore(), addition()
    with pytest.raises(StoreUnavailable):
        drive(added(more, 60, 8), Losing(store))
    assert drive(added(addition(writer="another"), 60, 8), store.apply)

    assert drive(added(more, 60, 8), store.apply)

    assert day_in(store).by_whose() == {("pay", "main"): {0: 2}}


def test_an_addition_that_a_cell_cannot_tell_any_more_is_left_out():
    store, more = MemoryStore(), addition()
    with pytest.raises(StoreUnavailable):
        drive(added(more, 60, 8), Losing(store))
    for number in range(fields.WRITERS):
        assert drive(added(addition(writer=str(number)), 60, 8), store.apply)

    assert drive(added(more, 60, 8), store.apply)

    assert day_in(store).by_whose() == {("pay", "main"): {0: 1 + fields.WRITERS}}


def test_a_day_has_room_for_so_many_and_the_rest_is_other():
    day = CountedDay()
    for number in range(300):
        day = plus(day, addition(number, rows={(f"tool {number % 3}", f"{number}"): {0: 1}}))
    for number in range(300):
        day = plus(day, addition(number, rows={(f"new {number}", "main"): {0: 1}}))
    rows = day.by_whose()

    assert len(rows) == fields.ROWS_MAX + fields.FURTHER_MAX + 1
    assert sum(numbers[0] for numbers in rows.values()) == 600
    assert rows["tool 0", fields.OTHER][0] > 30
    assert rows[fields.OTHER, fields.OTHER][0] > 200


def test_a_store_that_does_not_answer_gets_it_later(monkeypatch):
    store, away = MemoryStore(), True

    class Away:
        capabilities = store.capabilities
        close = store.close

        def apply(self, op, /):
            if away and isinstance(op, ReadCell | WriteCell):
                raise StoreUnavailable("away")
            return store.apply(op)

    guard = Guard(Away())
    pay_once(guard)
    guard._house.watch.counters.flush()
    pay_once(guard)
    away = False
    guard._house.watch.counters.flush()

    assert counted(guard) == {"landed": 1, "replayed": 1}


def test_a_store_of_ones_own_without_cells_keeps_no_counters_and_calls_go_on(caplog):
    store = MemoryStore()

    class Own:
        capabilities = store.capabilities
        close = store.close

        def apply(self, op, /):
            if isinstance(op, ReadCell | WriteCell):
                raise NotImplementedError
            return store.apply(op)

    guard = Guard(Own())

    with caplog.at_level("INFO"):
        assert pay_once(guard) == "paid"
        guard._house.watch.counters.flush()

    assert "counters are not kept" in caplog.text
    with pytest.raises(ContractViolation, match="this store keeps no counters"):
        guard.report()


def test_nothing_is_counted_if_the_guard_or_the_environment_says_so(monkeypatch):
    assert Guard("memory://", counters=0)._house.watch.counters is None
    monkeypatch.setenv("EFFECTONCE_COUNTERS", "0")
    assert Guard("memory://")._house.watch.counters is None
    assert days_of(30, {"EFFECTONCE_COUNTERS": "0"}) == 30
    assert days_of(None, {}) == 90
    with pytest.raises(ContractViolation, match="EFFECTONCE_COUNTERS='many'"):
        days_of(None, {"EFFECTONCE_COUNTERS": "many"})


def test_a_day_is_kept_as_long_as_the_guard_says():
    now = [1_763_424_000.0]
    store = MemoryStore(clock=lambda: now[0])
    kept = Counters(store, 2, clock=lambda: now[0])
    kept.of("pay").row("main")[fields.LANDED] += 1
    kept.flush()
    name = cell_of("2025-11-18")

    assert store.apply(ReadCell(name)).value
    now[0] += 3 * DAY_S
    assert not store.apply(ReadCell(name)).value


def test_rows_that_are_not_used_any_more_are_let_go():
    kept = Counters(MemoryStore(), 2)
    tool = kept.of("pay")
    for tenant in range(2 * counters.NAMES_MAX):
        tool.row(str(tenant))[fields.LANDED] += 1
    assert len(tool.rows) == counters.NAMES_MAX + 1
    for _ in range(3):
        kept.flush()

    assert tool.rows == {}


def test_the_report_is_about_days_of_utc():
    guard = Guard("memory://")

    assert len(guard.report(DAY_S).days) == 1
    assert len(guard.report(7 * DAY_S).days) == 7
    assert len(guard.report(1.5 * DAY_S).days) == 2
    with pytest.raises(ContractViolation, match="1 to 400 days"):
        guard.report(1000 * DAY_S)


def test_a_sealed_store_keeps_counters_as_well(tmp_path):
    ring = Keyring({"2026-11": b"n" * 32})
    guard = Guard(open_store(f"sqlite:///{tmp_path}/e.db"), keyring=ring, secret=b"x" * 16)
    pay_once(guard)

    assert counted(guard) == {"landed": 1}


def test_others_that_are_faster_each_time_leave_it_for_later():
    more = Addition("2026-11-18", "writer", 1, {("pay", "main"): {0: 1}})

    assert drive(added(more, 60.0, 3), lambda _: Cell(0.0, b"", 7)) is False


def test_a_day_of_another_release_is_left_out():
    def perform(_):
        return (Cell(0.0, b"\xc1", 1),)

    assert drive(counted_days(("2026-11-18",)), perform) == {}
