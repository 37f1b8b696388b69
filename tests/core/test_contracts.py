"""What is refused before anything is claimed."""

import contextvars
import functools
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from math import inf

import pytest

from effectonce import (
    Budget,
    ContractViolation,
    Downstream,
    Guard,
    Jitter,
    NotFound,
    Retry,
    State,
    TimeWindow,
)
from effectonce._core.guarantees import Capability, Kind, resend_window_s
from effectonce._core.ops import Search
from effectonce.workflows import Run
from tests.core.helpers import RECEIPT, Colour, Model, Receipt, Struct, named, tool


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"amount": "5", "to": "ada"}, "'amount' does not fit"),
        ({"amount": True, "to": "ada"}, "'amount' does not fit"),
        ({"amount": 5}, "missing a required argument: 'to'"),
        ({"amount": 5, "to": "ada", "key": "x"}, "unexpected keyword argument 'key'"),
        ({"amount": 5, "to": object()}, "'to' does not fit"),
    ],
)
def test_a_call_that_does_not_fit_claims_nothing(guard, arguments, reason):
    @guard.tool(kind="write")
    def pay(amount: int, to: str):
        pytest.fail("it must not run")

    with guard.step("chat", "pay"), pytest.raises(ContractViolation, match=reason):
        guard.call(pay, arguments)
    assert guard.counts() == {}


def test_enums_and_models_fit_their_hints(guard):
    @guard.tool(kind="write")
    def pay(
        colour: Colour,
        receipt: Receipt,
        struct: Struct,
        model: Model,
        many: list[Colour],
        *rest: int,
        **more: str,
    ):
        return len(rest)

    with guard.step("chat", "pay"):
        assert pay(Colour.RED, RECEIPT, Struct(1), Model(id=1), [Colour.RED], 1, 2, a="b") == 2
        assert pay(Colour.RED, RECEIPT, Struct(1), Model(id=1), [Colour.RED], 1, 2, a="b") == 2
    assert guard.counts() == {State.COMPLETED: 1}


def test_an_argument_without_identity_is_refused_before_any_claim(guard):
    @guard.tool(kind="write")
    def pay(thing):
        pytest.fail("it must not run")

    with guard.step("chat", "pay"):
        for thing in (object(), float("nan"), "\ud800"):
            with pytest.raises(ContractViolation, match="Nothing was sent"):
                pay(thing)
    assert guard.counts() == {}


def test_a_thread_of_a_pool_is_told_how_it_gets_the_step_of_who_started_it(guard):
    pay = tool(guard, named("pay", lambda: 1))

    with guard.step("chat", "pay"), ThreadPoolExecutor() as threads:
        with pytest.raises(
            ContractViolation, match=r"outside a step.* contextvars\.copy_context\(\)\.run"
        ):
            threads.submit(pay).result()
        assert threads.submit(contextvars.copy_context().run, pay).result() == 1


def test_a_permission_is_checked_before_the_claim_and_before_a_replay(guard):
    @guard.tool(kind="write", permission="payments:write")
    def pay():
        return "paid"

    with guard.step("chat", "pay", permissions={"payments:write"}):
        assert pay() == "paid"
    with guard.step("chat", "pay"), pytest.raises(ContractViolation, match="needs the permission"):
        pay()


def test_a_tool_that_moved_on_refuses_an_older_caller(guard):
    tool(guard, named("pay", lambda: None), version="2")
    with pytest.raises(ContractViolation, match="version 2, not 1"):
        guard.call("pay", {}, key="k", version="1")


@pytest.mark.parametrize(
    ("contract", "reason"),
    [
        ({"kind": "maybe"}, "kind='maybe'"),
        ({"downstream": "hope"}, "downstream='hope'"),
        ({"downstream": "transaction"}, "no transactions"),
        ({"kind": "irreversible"}, "it can forget"),
        ({"kind": "irreversible", "downstream": "probe"}, "it can forget"),
        (
            {"kind": "irreversible", "downstream": "key", "dedup": TimeWindow(seconds=5)},
            "cannot guard an irreversible",
        ),
        ({"identity": ["nobody"]}, "no parameter 'nobody'"),
        ({"volatile": ["nobody"]}, "no parameter 'nobody'"),
        ({"window": -1}, "window must be positive"),
        ({"lease_s": 0}, "lease"),
        ({"lease_s": float("inf")}, "at most 12 h"),
        ({"wait_s": -1}, "waiting"),
        ({"tombstone": -1}, "forgotten before its window"),
    ],
)
def test_a_contract_that_cannot_be_kept_is_refused_at_decoration(guard, contract, reason):
    with pytest.raises(ContractViolation, match=reason):
        tool(guard, named("pay", lambda: None), **contract)


def test_identity_and_volatile_exclude_each_other(guard):
    with pytest.raises(ContractViolation, match="both identity and volatile"):
        guard.tool(kind="write", identity=["a"], volatile=["a"])(lambda a: a)


@pytest.mark.parametrize(
    "bad",
    [{"attempts": 0}, {"throttled_attempts": 0}, {"base_s": 2, "cap_s": 1}, {"deadline_s": 0}],
)
def test_a_retry_policy_is_checked(bad):
    with pytest.raises(ContractViolation):
        Retry(**bad)


@pytest.mark.parametrize(
    ("kind", "days"), [("idempotent_write", inf), ("write", 7), ("irreversible", 30)]
)
def test_a_key_counts_for_as_long_as_its_kind_says(tmp_path, kind, days):
    guard = Guard(f"sqlite:///{tmp_path}/effects.db")

    @guard.tool(kind=kind)
    def act(name: str): ...

    with guard.step("chat", "act"):
        act("one")

    (record,) = guard.store.apply(Search())
    guard.close()
    assert record.request.terms.window_s == days * 86_400


def test_the_defaults_of_retries_and_turns_are_the_published_ones():
    retry, turn = Retry(), Budget()

    assert retry.jitter is Jitter.FULL
    assert (turn.attempts, turn.steps, turn.wall_s) == (3, 8, 90)


def test_policies_that_make_no_sense_are_refused():
    with pytest.raises(ContractViolation, match="downstream='none'"):
        Downstream.key(window=0)
    # a negative one would let a tool run again beside its own request
    for delay in (-1, float("nan"), timedelta(seconds=-1)):
        with pytest.raises(ContractViolation, match="before it is sent"):
            Downstream.probe(delay=delay)
    with pytest.raises(ContractViolation, match="must be positive"):
        TimeWindow(seconds=0)
    for name in ("key", "probe", "none", "transaction"):
        assert Downstream.of(name).capability == name
    assert Downstream.key(window=timedelta(hours=1)).window_s == 3600


@pytest.mark.parametrize(
    "url", ["", "effects.db", "sqlite:effects.db", "mongodb://x", "memory://x", "sqlite:///"]
)
def test_a_url_that_names_no_store_is_refused(url):
    with pytest.raises(ContractViolation, match="is not the URL of a store"):
        Guard(url)


def test_the_wrong_colour_is_a_type_error_at_decoration(guard):
    sync = tool(guard, named("pay", lambda: None), downstream="probe")

    async def probe():
        return NotFound()

    with pytest.raises(TypeError, match="both must be def, or both async def"):
        sync.probe(probe)
    with pytest.raises(TypeError, match="both must be def, or both async def"):
        sync.fallback(probe)

    def generate():
        yield 1

    with pytest.raises(TypeError, match="is a generator"):
        guard.tool(kind="write")(generate)


def test_a_probe_needs_a_downstream_that_can_be_asked(guard):
    with pytest.raises(ContractViolation, match="downstream='probe'"):
        tool(guard, named("pay", lambda: None)).probe(lambda: NotFound())


@pytest.mark.parametrize("stranger", [print, tool(Guard("memory://"), named("pay", lambda: None))])
def test_a_stranger_is_not_a_tool_of_this_guard(guard, stranger):
    with pytest.raises(ContractViolation, match="not a tool of this guard"):
        guard.call(stranger, {}, key="k")


def test_a_step_is_entered_once_at_a_time(guard):
    step = guard.step("chat", "pay")
    with step, pytest.raises(RuntimeError, match="already entered"):
        step.__enter__()
    with step:
        pass


def test_a_step_that_is_left_elsewhere_says_so_and_hides_no_error(guard):
    def dependency():
        with guard.step("chat", "pay"):
            yield

    step = dependency()
    contextvars.copy_context().run(next, step)
    with pytest.raises(
        RuntimeError, match=r"this step was entered in another task or thread.* in one function"
    ):
        next(step)

    step = dependency()
    contextvars.copy_context().run(next, step)
    with pytest.raises(ContractViolation, match="outside a step"):
        step.throw(ContractViolation("called outside a step"))


def test_steps_of_generators_that_take_turns_are_told_of(guard):
    places = []

    def agent(chat):
        with guard.step(chat, "pay"):
            yield
            places.append(pay.explain().scope)

    pay = tool(guard, named("pay", lambda: 1))
    first, second = agent("chat-1"), agent("chat-2")
    next(first)
    next(second)

    with pytest.raises(
        RuntimeError,
        match=r"another step was entered in this one and not left.* Yield nothing inside a step",
    ):
        next(first)
    assert places == ["chat-2"], "Python has one context for both: nobody can tell before"
    for _ in range(2):
        with pytest.raises(ContractViolation, match="outside a step"):
            pay()
        second.close()


def test_a_method_is_refused_unless_it_is_bound(guard):
    class Bank:
        def pay(self, invoice: str):
            return invoice

    with pytest.raises(ContractViolation, match="would be part of the key"):
        guard.tool(kind="write")(Bank.pay)
    guard.tool(kind="write", volatile=["self"])(Bank.pay)
    pay = guard.tool(kind="write", name="pay at the bank")(Bank().pay)
    with guard.step("chat", "pay"):
        assert pay("inv_1") == "inv_1"


def test_tools_from_a_factory_do_not_share_keys(guard):
    def pay_from(account):
        @guard.tool(kind="write")
        def pay(invoice: str):
            return account

        return pay

    pay_from("A")
    pay_from("A")
    with pytest.raises(ContractViolation, match="other captured values"):
        pay_from("B")


def test_a_tool_that_captures_itself_may_be_made_again(guard):
    def make():
        @guard.tool(kind="write")
        def pay(n: int):
            return pay.__name__ if n else None

        return pay

    assert make() is not None
    assert make() is not None


def test_a_lambda_needs_a_name(guard):
    with pytest.raises(ContractViolation, match="a lambda has no name"):
        guard.tool(kind="write")(lambda x: x)
    guard.tool(kind="write", name="echo")(lambda x: x)


def in_cents(pay):
    @functools.wraps(pay)
    def paid(amount):
        return pay(100 * amount)

    return paid


def test_what_somebody_put_around_a_tool_is_never_skipped(guard):
    paid = []

    @guard.workflow
    def shop(run: Run, amount: int):
        return run.step("pay", cents, amount)

    class Till:
        @guard.tool(kind="write", volatile=["self"])
        def give(self, amount: int = 0):
            paid.append(amount)

    @guard.workflow
    def sell(run: Run):
        return run.step("give", Till().give, 5)

    cents = in_cents(guard.tool(kind="write", name="pay")(paid.append))

    with guard.step("chat", "pay"):
        cents(5)
    with pytest.raises(
        ContractViolation,
        match="decorated once more above the guard, and that decorator would be skipped",
    ):
        guard.call(cents, {"object": 5}, key="ord_17")
    with pytest.raises(ContractViolation, match="pay is decorated once more"):
        shop(5)
    with pytest.raises(
        ContractViolation, match="give is a method here, and its object would be left out"
    ):
        sell()
    assert paid == [500]


@pytest.mark.parametrize("kind", Kind)
def test_how_long_a_lost_request_may_be_sent_again(kind):
    """A key is not used in the last moments of its window: the downstream looks at its own
    clock, a little later.
    """
    unbounded = kind in (Kind.READ, Kind.IDEMPOTENT_WRITE)
    for downstream, window_s, resend_s in (
        (Capability.TRANSACTION, 3600.0, inf),
        (Capability.KEY, 3600.0, inf if unbounded else 3540.0),
        (Capability.KEY, 100.0, inf if unbounded else 90.0),
        (Capability.PROBE, 3600.0, inf if unbounded else 0.0),
        (Capability.NONE, 3600.0, inf if unbounded else 0.0),
    ):
        assert resend_window_s(kind, downstream, window_s) == resend_s
