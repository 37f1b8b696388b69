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
from tests.http.callers import SOON, each_client
from tests.http.twice import (
    DONE,
    DOUBT,
    FAILED_BEFORE,
    IRREVERSIBLE,
    ONCE,
    aended,
    atwice,
    each_way,
    ended,
    twice,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
PAYS = ("/pay",)


def calls(caller, url, *asked, **contract):
    """Return the outcomes of two calls: the tool makes these requests and fails in its first run,
    and pays in its next one.
    """
    runs = iter([asked, PAYS])

    def work(order: int) -> str:
        requests = next(runs)
        caller.calls(url_of(url, requests), *requests)
        return finish(requests)

    async def awork(order: int) -> str:
        requests = next(runs)
        await caller.acalls(url_of(url, requests), requests, 5.0, {})
        return finish(requests)

    return twice(work if caller.colour == "sync" else awork, **IRREVERSIBLE | contract)


def finish(requests):
    if requests is PAYS:
        return "paid"
    raise ValueError("my own parsing")


async def within(guard, work):
    with guard.step("chat", "work"):
        return await work(1)


def url_of(url, requests):
    """Return an address where nobody listens for the requests of `NOWHERE`."""
    return "http://127.0.0.1:1" if requests == NOWHERE else url


NOWHERE = ("/pay?nowhere",)
WHOLE = {"through": "protected"}
WATCHED = {"kind": "write"} | WHOLE


@each_client
def test_a_tool_that_fails_before_it_sends_runs_again_if_it_sends_only_through_protected_clients(
    shop, caller
):
    assert calls(caller, shop.url, **WHOLE) == ["ValueError", "paid"]
    assert calls(caller, shop.url) == DOUBT
    assert shop.effects == 1


@each_client
def test_a_request_that_could_not_leave_is_none(shop, caller):
    assert calls(caller, shop.url, *NOWHERE, **WHOLE)[1] == "paid"
    assert calls(caller, shop.url, *NOWHERE)[1] == "InDoubt"
    assert shop.effects == 1


@each_client
@each_way
def test_a_refused_request_is_a_failure_for_good_whatever_the_tool_makes_of_it(
    shop, caller, contract
):
    shop.faults = [(422, {})]

    assert calls(caller, shop.url, "/pay", **contract) == ["ValueError", "ReplayedFailure"]
    assert (shop.effects, len(shop.requests)) == (0, 1)


@each_client
@each_way
def test_a_request_that_was_answered_with_success_is_done_whatever_the_tool_makes_of_it(
    shop, caller, contract
):
    assert calls(caller, shop.url, "/pay", **contract) == DONE
    assert shop.effects == 1


@each_client
@pytest.mark.parametrize(
    "faults", [[None, None], [None, (422, {})], ["lose"], ["reset"], ["cut"], [(500, {})]]
)
def test_two_requests_and_a_lost_answer_stay_in_doubt(shop, caller, faults):
    shop.faults = list(faults)
    asked = ("/pay", "/mail") if len(faults) == 2 else ("/pay",)

    assert calls(caller, shop.url, *asked, **WHOLE) == DOUBT
    assert shop.effects <= len(asked)


@each_client
def test_a_read_says_nothing_about_the_effect(shop, caller):
    shop.faults = [(404, {})]

    assert calls(caller, shop.url, ("GET", "/orders"), **WHOLE) == ["ValueError", "paid"]
    assert shop.effects == 1


@each_client
def test_a_stream_that_is_not_read_to_its_end_is_no_answer(shop, caller):
    shop.faults = ["break"]

    assert calls(caller, shop.url, "/pay", **WHOLE) == DOUBT


# ---------------------------------------------------------------- past the clients


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
WORK = {
    "work": int,
    "an earlier context": functools.partial(EARLIER.run, int),
    "a partial of it": functools.partial(functools.partial(EARLIER.run), int),
}
SPAWNED = functools.partial(
    concurrent.futures.ProcessPoolExecutor, mp_context=multiprocessing.get_context("spawn")
)


@pytest.mark.parametrize(
    ("make", "work"),
    [
        *((concurrent.futures.ThreadPoolExecutor, work) for work in WORK.values()),
        pytest.param(SPAWNED, int, marks=pytest.mark.long),
    ],
    ids=[*WORK, "process"],
)
def test_work_for_a_pool_is_noticed_before_it_is_done(make, work):
    """The thread, or the process, is there before the tool, and does not know its effect."""
    guard, states = Guard("memory://", cache=0), []
    with make(1) as pool:
        pool.submit(int).result()

        @guard.tool(**WATCHED)
        def pays(order: int) -> None:
            done = pool.submit(work)
            states.append(guard.find(current_effect().ref.key).state)
            done.result()
            raise ValueError("bad sku")

        for _ in range(2):
            with guard.step("chat", "work"), pytest.raises(InDoubt):
                pays(1)

    assert states == ["dispatched"]


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


def test_parts_that_are_sent_over_a_connection_are_no_datagram():
    """An event loop writes like that, for whoever has a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert ended(lambda: ours.sendmsg([b"a log line"]), **WATCHED) == FAILED_BEFORE


def test_what_is_done_elsewhere_meanwhile_is_no_business_of_the_tool(shop):
    """Another thread, which was there before, talks to a server while the tool runs."""
    go, done = threading.Event(), threading.Event()

    def other():
        go.wait(30)
        httpx.post(f"{shop.url}/pay")
        done.set()

    thread = threading.Thread(target=other)
    thread.start()

    assert ended(lambda: (go.set(), done.wait(30)), **WATCHED) == FAILED_BEFORE
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

    assert ended(lambda: client.post("http://shop/pay"), **WATCHED) == DONE


def test_an_answer_without_a_body_is_one():
    client = made_up(lambda request: httpx.Response(204, stream=httpx.ByteStream(b"")))

    assert ended(lambda: client.delete("http://shop/pay"), **WATCHED) == DONE


def test_a_request_that_had_no_time_left_did_not_leave(shop):
    with httpx.Client() as made:
        client = protect(made, retry=SOON)

        def act():
            while current_effect().remaining_s:
                pass
            client.post(f"{shop.url}/pay")

        hurried = WATCHED | {"retry": Retry(attempts=1, deadline_s=0.05)}
        assert ended(act, **hurried) == ["GaveUp", "GaveUp"]
    assert shop.requests == []


def test_a_read_that_was_dealt_with_does_not_speak_for_the_refusal_after_it(shop):
    shop.faults = [(404, {}), (422, {})]

    def work(order: int) -> None:
        try:
            httpx.get(f"{shop.url}/orders").raise_for_status()
        except httpx.HTTPStatusError:
            httpx.post(f"{shop.url}/pay").raise_for_status()

    assert twice(work, kind="write") == ["HTTPStatusError", "ReplayedFailure"]


def test_an_effect_inside_what_sending_surrounds_is_watched_by_itself(shop):
    guard = Guard("memory://", cache=0)

    @guard.tool(kind="write")
    def outer(order: int) -> list[str]:
        with current_effect().sending():
            return ended(lambda: httpx.post(f"{shop.url}/pay"), **WATCHED)

    with guard.step("chat", "outer"):
        assert outer(1) == DOUBT


# ---------------------------------------------------------------- aiohttp


def with_aiohttp(act):
    """How two calls end of a tool that acts through a session, and then fails; and what the
    server heard.
    """
    heard = []

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

            said = await aended(lambda: act(session), kind="write", through=session)
        await runner.cleanup()
        return said, heard

    return asyncio.run(main())


def test_middlewares_for_one_request_do_not_hide_it():
    async def signed(request, handler):
        return await handler(request)

    async def act(session):
        async with session.post("/pay", data="pay", middlewares=[signed]) as response:
            await response.text()

    assert with_aiohttp(act) == (DONE, ["pay"])


def test_what_goes_through_a_websocket_is_not_nothing():
    async def act(session):
        async with session.ws_connect("/talk") as socket:
            await socket.send_str("pay")
            await socket.receive()

    assert with_aiohttp(act) == (DOUBT, ["pay"])


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
    guard = Guard("memory://", cache=0)

    async def main():
        names = NeverFound()
        connector = aiohttp.TCPConnector(resolver=names)
        timeout = aiohttp.ClientTimeout(total=None, connect=0.05)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as made:
            session = protect(made, retry=ONCE)

            async def work(order: int) -> None:
                await act(session)

            declared = {"kind": "write", "through": session, "retry": ONCE, "wait_s": 0}
            said = await atwice(work, guard=guard, **declared)
        await names.close()
        return said

    return asyncio.run(main()), guard.counts()


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

    assert (says, counts) == (FAILED_BEFORE, {"claimed": 1})


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

    assert says == DOUBT
