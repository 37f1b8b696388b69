"""What real clients saw decides what an error means: nothing left, refused, done, or nobody knows."""

import asyncio
import contextvars
import socket
import subprocess
import sys
import threading

import httpx
import pytest

from effectonce import ContractViolation, GaveUp, Guard, InDoubt, Retry, current_effect
from effectonce.http.clients import protect
from tests.http.callers import CALLERS, SOON

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
each_client = pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
PAYS = ("/pay",)


def calls(caller, url, *asked, then="raise ValueError", **contract):
    """Two calls of a tool that makes these requests and fails, in its first run, and pays in its next one: how each call ended."""
    guard, ended = Guard("memory://", cache=0), []
    declared = {"kind": "irreversible", "accept_store_loss": True, "retry": Retry(attempts=1)} | contract
    first = [True]

    def plan():
        asked_now, first[:] = (asked if first[0] else PAYS), [False]
        return asked_now

    def failed(asked_now):
        if asked_now is not PAYS and then:
            raise ValueError("my own parsing")
        return "paid"

    if caller.colour == "sync":

        @guard.tool(**declared)
        def work(order: int) -> str:
            asked_now = plan()
            caller.calls(url if asked_now is PAYS else wrong(url, asked_now), *asked_now)
            return failed(asked_now)

        def call():
            return work(1)
    else:

        @guard.tool(**declared)
        async def work(order: int) -> str:
            asked_now = plan()
            await caller.acalls(url if asked_now is PAYS else wrong(url, asked_now), asked_now, 5.0, {})
            return failed(asked_now)

        def call():
            return asyncio.run(within(guard, work))

    for _ in range(2):
        with guard.step("chat", "work"):
            try:
                ended.append(call())
            except Exception as error:  # whatever comes out is looked at
                ended.append(type(error).__name__)
    return ended


async def within(guard, work):
    with guard.step("chat", "work"):
        return await work(1)


def wrong(url, asked):
    """Where nobody listens, if that is what is asked for."""
    return "http://127.0.0.1:1" if asked == NOWHERE else url


NOWHERE = ("/pay?nowhere",)
WHOLE = {"through": "protected"}


@each_client
def test_a_tool_that_fails_before_it_sends_runs_again_if_it_sends_only_through_protected_clients(shop, caller):
    assert calls(caller, shop.url, **WHOLE) == ["ValueError", "paid"]
    assert calls(caller, shop.url) == ["InDoubt", "InDoubt"]
    assert shop.effects == 1


@each_client
def test_a_request_that_could_not_leave_is_none(shop, caller):
    assert calls(caller, shop.url, *NOWHERE, **WHOLE)[1] == "paid"
    assert calls(caller, shop.url, *NOWHERE)[1] == "InDoubt"
    assert shop.effects == 1


@each_client
@pytest.mark.parametrize("contract", [WHOLE, {}], ids=["through", "nothing declared"])
def test_a_refused_request_is_a_failure_for_good_whatever_the_tool_makes_of_it(shop, caller, contract):
    shop.faults = [(422, {})]

    assert calls(caller, shop.url, "/pay", **contract) == ["ValueError", "ReplayedFailure"]
    assert (shop.effects, len(shop.requests)) == (0, 1)


@each_client
@pytest.mark.parametrize("contract", [WHOLE, {}], ids=["through", "nothing declared"])
def test_a_request_that_was_answered_with_success_is_done_whatever_the_tool_makes_of_it(shop, caller, contract):
    assert calls(caller, shop.url, "/pay", **contract) == ["ResultUnavailable", "ResultUnavailable"]
    assert shop.effects == 1


@each_client
@pytest.mark.parametrize("faults", [[None, None], [None, (422, {})], ["lose"], ["reset"], ["cut"], [(500, {})]])
def test_two_requests_and_a_lost_answer_stay_in_doubt(shop, caller, faults):
    shop.faults = list(faults)
    asked = ("/pay", "/mail") if len(faults) == 2 else ("/pay",)

    assert calls(caller, shop.url, *asked, **WHOLE) == ["InDoubt", "InDoubt"]
    assert shop.effects <= len(asked)


@each_client
def test_a_read_says_nothing_about_the_effect(shop, caller):
    shop.faults = [(404, {})]

    assert calls(caller, shop.url, ("GET", "/orders"), **WHOLE) == ["ValueError", "paid"]
    assert shop.effects == 1


@each_client
def test_a_stream_that_is_not_read_to_its_end_is_no_answer(shop, caller):
    shop.faults = ["break"]

    assert calls(caller, shop.url, "/pay", **WHOLE) == ["InDoubt", "InDoubt"]


# ---------------------------------------------------------------- past the clients


def ended(act, **contract):
    """How two calls of a tool end that acts, and then fails."""
    guard, says = Guard("memory://", cache=0), []

    @guard.tool(**{"kind": "write", "through": "protected"} | contract)
    def work(order: int) -> None:
        act()
        raise ValueError("bad sku")

    for _ in range(2):
        with guard.step("chat", "work"):
            try:
                work(1)
            except Exception as error:  # whatever comes out is looked at
                says.append(type(error).__name__)
    return says


def in_a_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def in_a_context(function):
    thread = threading.Thread(target=contextvars.copy_context().run, args=(function,))
    thread.start()
    thread.join()


@pytest.mark.parametrize("how", [lambda f: f(), in_a_thread, in_a_context], ids=["here", "thread", "context"])
def test_a_bare_client_is_noticed(shop, how):
    assert ended(lambda: how(lambda: httpx.post(f"{shop.url}/pay"))) == ["InDoubt", "InDoubt"]
    assert shop.effects == 1


def test_a_process_is_noticed():
    assert ended(lambda: subprocess.run([sys.executable, "-c", ""], check=True)) == ["InDoubt", "InDoubt"]


def test_a_bare_socket_is_noticed(shop):
    def act():
        with socket.create_connection(("127.0.0.1", int(shop.url.rpartition(":")[2]))):
            pass

    assert ended(act) == ["InDoubt", "InDoubt"]


def test_what_is_done_elsewhere_meanwhile_is_no_business_of_the_tool(shop):
    """Another thread, which was there before, talks to a server while the tool runs."""
    go, done = threading.Event(), threading.Event()

    def other():
        go.wait(30)
        httpx.post(f"{shop.url}/pay")
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    assert ended(lambda: (go.set(), done.wait(30))) == ["ValueError", "ValueError"]
    thread.join()


def test_a_task_that_outlives_its_tool_is_noticed(shop):
    guard = Guard("memory://", cache=0)

    async def main():
        async with httpx.AsyncClient() as made:
            client, tasks = protect(made, retry=SOON), []

            async def later():
                await asyncio.sleep(0)
                await client.post(f"{shop.url}/pay")

            @guard.tool(kind="write", through=client)
            async def work(order: int) -> None:
                tasks.append(asyncio.create_task(later()))
                raise ValueError("bad sku")

            said = []
            for _ in range(2):
                with guard.step("chat", "work"):
                    try:
                        await work(1)
                    except Exception as error:  # whatever comes out is looked at
                        said.append(type(error).__name__)
            await asyncio.gather(*tasks)
            return said

    assert asyncio.run(main()) == ["InDoubt", "InDoubt"]
    assert shop.effects == 1


# ---------------------------------------------------------------- what is declared


def test_only_protected_clients_can_be_named():
    guard = Guard("memory://")
    with httpx.Client() as bare, httpx.Client() as other:
        client = protect(other)

        guard.tool(kind="write", through=client, name="one")(lambda order: None)
        guard.tool(kind="write", through=[client], name="two")(lambda order: None)
        for wrong in (bare, [client, bare], "everything", 5, [[]]):
            with pytest.raises(ContractViolation, match="through="):
                guard.tool(kind="write", through=wrong, name="three")(lambda order: None)


def test_a_tool_that_names_a_protected_client_sends_its_key_so_a_bug_before_that_is_no_doubt(shop):
    """`downstream="key"`: the client reads the key when it sends. An error before that has no less help."""
    guard, first = Guard("memory://", cache=0), [True]
    with httpx.Client() as made, httpx.Client() as other:
        client, keyless = protect(made, retry=SOON), protect(other, retry=SOON, keys=None)

        def pays(sent_from, name):
            @guard.tool(kind="write", downstream="key", name=name)
            def pay(order: int) -> str:
                if first.pop() if first else False:
                    raise ValueError("bad sku")
                return sent_from.post(f"{shop.url}/pay").text

            return pay

        def call(tool):
            with guard.step("chat", tool.contract.name):
                return tool(1)

        with pytest.raises(GaveUp):
            call(pays(client, "keyed"))
        assert "effect" in call(pays(client, "keyed"))
        first.append(True)
        for _ in range(2):
            with pytest.raises(InDoubt):
                call(pays(keyless, "keyless"))
    assert shop.effects == 1


# ---------------------------------------------------------------- sending()


def test_an_error_before_sending_had_no_effect_and_one_inside_it_may_have(shop):
    guard, runs = Guard("memory://", cache=0), []

    @guard.tool(kind="write", retry=Retry(attempts=1))
    def work(sku: str) -> str:
        runs.append(sku)
        if len(runs) == 1:
            raise ValueError("bad sku")
        with current_effect().sending():
            if sku == "lost":
                raise ValueError("somewhere on the way")
            return httpx.post(f"{shop.url}/pay").text

    with guard.step("chat", "well"):
        with pytest.raises(ValueError, match="bad sku"):
            work("well")
        assert "effect" in work("well")
    with guard.step("chat", "lost"):
        for _ in range(2):
            with pytest.raises(Exception, match="in doubt"):
                work("lost")

    assert (shop.effects, runs) == (1, ["well", "well", "lost"])
