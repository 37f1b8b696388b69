"""What real clients saw decides what an error means: nothing left, refused, done, or nobody
knows.
"""

import asyncio
import concurrent.futures
import contextvars
import functools
import multiprocessing
import socket
import subprocess
import sys
import threading

import aiohttp
import anyio.to_thread
import httpx
import pytest
from aiohttp import web

from effectonce import ContractViolation, GaveUp, Guard, InDoubt, Retry, current_effect
from effectonce.http.client import protect
from tests.http.callers import CALLERS, SOON

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
each_client = pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS)
PAYS = ("/pay",)


def calls(caller, url, *asked, then="raise ValueError", **contract):
    """Two calls of a tool that makes these requests and fails, in its first run, and pays in its
    next one: how each call ended.
    """
    guard, ended = Guard("memory://", cache=0), []
    declared = {
        "kind": "irreversible",
        "accept_store_loss": True,
        "retry": Retry(attempts=1),
    } | contract
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
            await caller.acalls(
                url if asked_now is PAYS else wrong(url, asked_now), asked_now, 5.0, {}
            )
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
def test_a_tool_that_fails_before_it_sends_runs_again_if_it_sends_only_through_protected_clients(
    shop, caller
):
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
def test_a_refused_request_is_a_failure_for_good_whatever_the_tool_makes_of_it(
    shop, caller, contract
):
    shop.faults = [(422, {})]

    assert calls(caller, shop.url, "/pay", **contract) == ["ValueError", "ReplayedFailure"]
    assert (shop.effects, len(shop.requests)) == (0, 1)


@each_client
@pytest.mark.parametrize("contract", [WHOLE, {}], ids=["through", "nothing declared"])
def test_a_request_that_was_answered_with_success_is_done_whatever_the_tool_makes_of_it(
    shop, caller, contract
):
    assert calls(caller, shop.url, "/pay", **contract) == ["ResultUnavailable", "ResultUnavailable"]
    assert shop.effects == 1


@each_client
@pytest.mark.parametrize(
    "faults", [[None, None], [None, (422, {})], ["lose"], ["reset"], ["cut"], [(500, {})]]
)
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


@pytest.mark.parametrize(
    "how", [lambda f: f(), in_a_thread, in_a_context], ids=["here", "thread", "context"]
)
def test_a_bare_client_is_noticed(shop, how):
    assert ended(lambda: how(lambda: httpx.post(f"{shop.url}/pay"))) == ["InDoubt", "InDoubt"]
    assert shop.effects == 1


async def traced(function):
    """As with a tracer that wraps what is handed to a pool."""
    pool = concurrent.futures.ThreadPoolExecutor
    below = pool.submit

    def submit(self, function, *args):
        return below(self, lambda: function(*args))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "submit", submit)
        return await asyncio.to_thread(function)


@pytest.mark.parametrize("in_thread", [asyncio.to_thread, anyio.to_thread.run_sync, traced])
def test_a_thread_that_takes_the_context_along_is_none_of_its_own(shop, in_thread):
    """As frameworks run sync tools. What is done there is noticed there."""
    guard, client, fails = Guard("memory://", cache=0), protect(httpx.Client(), retry=SOON), [1]

    @guard.tool(kind="write", through=client)
    async def pays(order: int) -> int:
        status = await in_thread(lambda: client.get(f"{shop.url}/pay").status_code)
        if fails:
            raise ValueError(fails.pop())
        return await in_thread(lambda: client.post(f"{shop.url}/pay").status_code) - status

    @guard.tool(kind="write", through=client)
    async def past(order: int) -> None:
        await in_thread(lambda: httpx.post(f"{shop.url}/pay"))
        raise ValueError("bad sku")

    with client:
        with pytest.raises(ValueError, match="1"):
            asyncio.run(within(guard, pays))
        assert (asyncio.run(within(guard, pays)), shop.effects) == (0, 1)
        for _ in range(2):
            with pytest.raises(InDoubt):
                asyncio.run(within(guard, past))
    assert shop.effects == 2


EARLIER = contextvars.copy_context()  # of a request, or of a job: not of a tool
GIVEN = {
    "work": lambda work: work,
    "an earlier context": lambda work: functools.partial(EARLIER.run, work),
    "a partial of it": lambda work: functools.partial(functools.partial(EARLIER.run), work),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_work_for_a_thread_of_a_pool_is_noticed_before_it_is_done(shop, given):
    """The thread is there before the tool, and does not know its effect."""
    guard = Guard("memory://", cache=0)
    pool = concurrent.futures.ThreadPoolExecutor(1)
    with protect(httpx.Client(), retry=SOON) as client, pool:
        pool.submit(int).result()

        @guard.tool(kind="write", through=client)
        def pays(order: int) -> None:
            state = pool.submit(given(lambda: client.post(f"{shop.url}/pay").text))
            states.append(guard.find(current_effect().ref.key).state)
            state.result()
            raise ValueError("bad sku")

        states = []
        for _ in range(2):
            with guard.step("chat", "work"), pytest.raises(InDoubt):
                pays(1)
    assert (states, shop.effects) == (["dispatched"], 1)


def test_what_a_timeout_left_in_a_thread_sends_nothing_past_the_clients_either(shop):
    guard, go, late = Guard("memory://", cache=0), threading.Event(), []

    def slow():
        go.wait(30)
        try:
            httpx.post(f"{shop.url}/pay")
        except ContractViolation as error:
            late.append(str(error))

    @guard.tool(kind="write", through="protected", retry=Retry(attempts=1))
    async def pays(order: int) -> None:
        await asyncio.wait_for(asyncio.to_thread(slow), 0.01)

    async def main():
        with pytest.raises((TimeoutError, GaveUp)):
            await within(guard, pays)
        go.set()
        await asyncio.get_running_loop().shutdown_default_executor()

    asyncio.run(main())
    assert shop.effects == 0
    assert [text.partition("nothing. ")[2] for text in late] == [
        "It connected a socket: that was stopped."
    ]


def test_another_tool_inside_it_is_noticed(shop):
    """Its request is seen by its own effect. Run again, the outer tool may ask for something
    else.
    """
    guard, sizes = Guard("memory://", cache=0), iter([1, 2])
    with httpx.Client() as made:
        client = protect(made, retry=SOON)

        @guard.tool(kind="write", through=client)
        def charge(amount: int) -> str:
            return client.post(f"{shop.url}/pay").text

        assert ended(lambda: charge(next(sizes))) == ["InDoubt", "InDoubt"]
    assert shop.effects == 1


def test_a_process_is_noticed():
    assert ended(lambda: subprocess.run([sys.executable, "-c", ""], check=True)) == [
        "InDoubt",
        "InDoubt",
    ]


def test_a_bare_socket_is_noticed(shop):
    def act():
        with socket.create_connection(("127.0.0.1", int(shop.url.rpartition(":")[2]))):
            pass

    assert ended(act) == ["InDoubt", "InDoubt"]


def test_work_for_a_process_of_a_pool_is_noticed_before_it_is_done():
    """The process is there before the tool."""
    guard, states = Guard("memory://", cache=0), []
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(int).result()

        @guard.tool(kind="write", through="protected")
        def pays(order: int) -> None:
            done = pool.submit(int)
            states.append(guard.find(current_effect().ref.key).state)
            done.result()
            raise ValueError("bad sku")

        for _ in range(2):
            with guard.step("chat", "work"), pytest.raises(InDoubt):
                pays(1)

    assert states == ["dispatched"]


@pytest.mark.parametrize("how", ["sendto", "sendmsg"])
def test_a_datagram_is_noticed(how):
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bank,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made,
    ):
        bank.bind(("127.0.0.1", 0))
        there = bank.getsockname()
        ways = {
            "sendto": lambda: made.sendto(b"pay", there),
            "sendmsg": lambda: made.sendmsg([b"pay"], [], 0, there),
        }

        said = ended(ways[how])

    assert said == ["InDoubt", "InDoubt"]


def test_parts_that_are_sent_over_a_connection_are_no_datagram():
    """An event loop writes like that, for whoever has a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        said = ended(lambda: ours.sendmsg([b"a log line"]))

    assert said == ["ValueError", "ValueError"]


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


def test_threads_that_are_traced_are_not_disturbed(tmp_path):
    """Python 3.11 refuses a thread its tracer while another one installs its own, and with an
    audit hook that can be interrupted.
    """
    script = tmp_path / "traced.py"
    script.write_text(
        "import sys, threading\nfrom effectonce._runtime.unprotected_sends import"
        " install\ninstall()\nclass Garbage:\n    def __init__(self):\n        self.me = self\n   "
        " def __del__(self):\n        for _ in range(20):\n            pass\ndef trace(*_):\n   "
        " return None\ndef work():\n    for _ in range(20000):\n        Garbage()\n       "
        " sys.settrace(trace)\n        sys.settrace(None)\nsys.setswitchinterval(1e-6)\nthreads ="
        " [threading.Thread(target=work) for _ in range(4)]\nfor each in threads:\n   "
        " each.start()\nfor each in threads:\n    each.join()\n"
    )

    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=True, timeout=120
    )

    assert ran.stderr == ""


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
    """`downstream="key"`: the client reads the key when it sends. An error before that has no
    less help.
    """
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


class Mail:
    sending = "sending"  # a name that others have, too


def announces_elsewhere():
    with current_effect().sending():
        pass


def test_what_is_sent_past_sending_is_not_taken_as_nothing(shop):
    guard, said, open_before = Guard("memory://", cache=0), [], httpx.Client()
    open_before.get(shop.url)

    @guard.tool(kind="write")
    def named_alike(order: int) -> None:
        said.append(Mail.sending)
        open_before.post(f"{shop.url}/pay")
        raise ValueError("bad answer")

    @guard.tool(kind="write")
    def in_a_helper(order: int) -> None:
        httpx.post(f"{shop.url}/pay")
        if order > 1:
            announces_elsewhere()
        raise ValueError("bad answer")

    for work in (named_alike, in_a_helper):
        for _ in range(2):
            with guard.step("chat", work.__name__), pytest.raises(Exception, match="in doubt"):
                work(1)

    open_before.close()
    assert shop.effects == 2


# ---------------------------------------------------------------- what goes on after its tool
# has failed


def behind(send):
    """Ways to leave a request behind that is about to be sent: each fails before it is."""
    loop, pool = asyncio.new_event_loop(), concurrent.futures.ThreadPoolExecutor(1)
    threading.Thread(target=loop.run_forever, daemon=True).start()
    pool.submit(int).result()  # its thread is there before the tool
    go = threading.Event()

    def waits():
        go.wait(30)
        send()

    async def awaits():
        # set by another thread; to wait in a third one would be noticed
        while not go.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        send()

    return go, {
        "pool": lambda: pool.submit(contextvars.copy_context().run, waits),
        "loop": lambda: asyncio.run_coroutine_threadsafe(awaits(), loop),
    }


@pytest.mark.parametrize("how", ["pool", "loop"])
@pytest.mark.parametrize("announced", [False, True], ids=["through", "sending"])
def test_what_a_tool_left_behind_sends_nothing_once_it_counts_as_not_sent(shop, how, announced):
    guard, left = Guard("memory://", cache=0), []
    with httpx.Client() as made:
        client = protect(made, retry=SOON)

        def send():
            if not announced:
                client.post(f"{shop.url}/pay")
                return
            with current_effect().sending():
                httpx.post(f"{shop.url}/pay")

        go, ways = behind(send)

        def work(order: int) -> None:
            left.append(ways[how]())
            if order > 1:
                announces_elsewhere()
            raise ValueError("too slow")

        tool = guard.tool(kind="write", **{} if announced else WHOLE)(work)
        with guard.step("chat", "work"), pytest.raises(ValueError, match="too slow"):
            tool(1)
        go.set()
        with pytest.raises(ContractViolation, match="was not sent"):
            left[0].result(30)

    assert shop.effects == 0


# ---------------------------------------------------------------- what is an answer


def made_up(handler):
    return protect(httpx.Client(transport=httpx.MockTransport(handler)), retry=SOON)


def test_a_body_of_unknown_length_that_was_read_to_its_end_is_an_answer():
    client = made_up(lambda request: httpx.Response(200, content=iter([b"pa", b"id"])))

    assert ended(lambda: client.post("http://shop/pay")) == [
        "ResultUnavailable",
        "ResultUnavailable",
    ]


def test_an_answer_without_a_body_is_one():
    client = made_up(lambda request: httpx.Response(204, stream=httpx.ByteStream(b"")))

    assert ended(lambda: client.delete("http://shop/pay")) == [
        "ResultUnavailable",
        "ResultUnavailable",
    ]


def test_a_redirect_to_look_elsewhere_may_lead_to_a_log_in():
    client = made_up(
        lambda request: httpx.Response(303, headers={"location": "/login", "content-length": "0"})
    )

    assert ended(lambda: client.post("http://shop/pay")) == ["InDoubt", "InDoubt"]


def test_what_could_not_leave_is_not_done_because_something_else_was(shop):
    """A token was fetched, and the payment found nobody."""
    with httpx.Client() as made:
        client = protect(made, retry=Retry(attempts=1))

        def act():
            client.post(f"{shop.url}/token")
            client.post("http://127.0.0.1:1/pay")

        assert ended(act) == ["InDoubt", "InDoubt"]


def test_a_request_that_had_no_time_left_did_not_leave(shop):
    with httpx.Client() as made:
        client = protect(made, retry=SOON)

        def act():
            while current_effect().remaining_s:
                pass
            client.post(f"{shop.url}/pay")

        assert ended(act, retry=Retry(attempts=1, deadline_s=0.05)) == ["GaveUp", "GaveUp"]
    assert shop.requests == []


def test_a_read_that_was_dealt_with_does_not_speak_for_the_refusal_after_it(shop):
    shop.faults = [(404, {}), (422, {})]

    def act():
        try:
            httpx.get(f"{shop.url}/orders").raise_for_status()
        except httpx.HTTPStatusError:
            httpx.post(f"{shop.url}/pay").raise_for_status()

    guard, says = Guard("memory://", cache=0), []

    @guard.tool(kind="write")
    def work(order: int) -> None:
        act()

    for _ in range(2):
        with guard.step("chat", "work"):
            try:
                work(1)
            except Exception as error:  # whatever comes out is looked at
                says.append(type(error).__name__)
    assert says == ["HTTPStatusError", "ReplayedFailure"]


def test_an_effect_inside_what_sending_surrounds_is_watched_by_itself(shop):
    guard = Guard("memory://", cache=0)

    @guard.tool(kind="write")
    def outer(order: int) -> list[str]:
        with current_effect().sending():
            return ended(lambda: httpx.post(f"{shop.url}/pay"))

    with guard.step("chat", "outer"):
        assert outer(1) == ["InDoubt", "InDoubt"]


# ---------------------------------------------------------------- aiohttp


def with_aiohttp(act):
    """How two calls end of a tool that acts through a session, and then fails; and what the
    server heard.
    """
    guard, says, heard = Guard("memory://", cache=0), [], []

    async def pay(request):
        heard.append(await request.text())
        return web.Response(text="paid")

    async def talk(request):
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            heard.append(message.data)
            await socket.send_str("paid")
        return socket

    async def main():
        app = web.Application()
        app.add_routes([web.get("/", pay), web.post("/pay", pay), web.get("/talk", talk)])
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        async with aiohttp.ClientSession(f"http://127.0.0.1:{runner.addresses[0][1]}") as made:
            session = protect(made, retry=SOON)
            async with session.get("/"):
                heard.clear()

            @guard.tool(kind="write", through=session)
            async def work(order: int) -> None:
                await act(session)
                raise ValueError("bad answer")

            for _ in range(2):
                with guard.step("chat", "work"):
                    try:
                        await work(1)
                    except Exception as error:  # whatever comes out is looked at
                        says.append(type(error).__name__)
        await runner.cleanup()

    asyncio.run(main())
    return says, heard


def test_middlewares_for_one_request_do_not_hide_it():
    async def signed(request, handler):
        return await handler(request)

    async def act(session):
        async with session.post("/pay", data="pay", middlewares=[signed]) as response:
            await response.text()

    assert with_aiohttp(act) == (["ResultUnavailable", "ResultUnavailable"], ["pay"])


def test_what_goes_through_a_websocket_is_not_nothing():
    async def act(session):
        async with session.ws_connect("/talk") as socket:
            await socket.send_str("pay")
            await socket.receive()

    assert with_aiohttp(act) == (["InDoubt", "InDoubt"], ["pay"])


class NeverFound(aiohttp.abc.AbstractResolver):
    """Looks a host up for longer than anybody waits."""

    def __init__(self):
        self.asked, self.over = [], asyncio.Event()

    async def resolve(self, host, port=0, family=socket.AF_INET):
        self.asked.append(host)
        await self.over.wait()
        raise OSError("no such name")

    async def close(self):
        self.over.set()


def with_a_slow_name_service(act):
    """How two calls end of a tool whose host is not found in time."""
    guard, says = Guard("memory://", cache=0), []

    async def main():
        names = NeverFound()
        connector = aiohttp.TCPConnector(resolver=names)
        timeout = aiohttp.ClientTimeout(total=None, connect=0.05)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as made:
            session = protect(made, retry=Retry(attempts=1))

            @guard.tool(kind="write", through=session, retry=Retry(attempts=1), wait_s=0)
            async def work(order: int) -> None:
                await act(session)

            for _ in range(2):
                with guard.step("chat", "work"):
                    try:
                        await work(1)
                    except Exception as error:  # whatever comes out is looked at
                        says.append(type(error).__name__)
        await names.close()

    asyncio.run(main())
    return says, guard.counts()


def test_a_host_that_is_not_found_in_time_got_no_request():
    async def act(session):
        await session.post("http://bank.test/pay")

    says, counts = with_a_slow_name_service(act)

    assert "InDoubt" not in says
    assert counts == {"claimed": 1}


def test_nor_does_one_that_was_to_be_read():
    async def act(session):
        try:
            await session.get("http://bank.test/token")
        except TimeoutError:
            raise ValueError("no token") from None

    says, counts = with_a_slow_name_service(act)

    assert (says, counts) == (["ValueError", "ValueError"], {"claimed": 1})


def test_a_task_that_was_started_beside_a_request_is_noticed_still():
    """It is the tool's own, whatever a client does at the same time."""

    async def act(session):
        later = asyncio.ensure_future(asyncio.Event().wait())
        tasks.append(later)
        try:
            await session.get("http://bank.test/token")
        except TimeoutError:
            raise ValueError("no token") from None

    tasks = []

    says, _ = with_a_slow_name_service(act)

    assert says == ["InDoubt", "InDoubt"]
