"""A protected channel of gRPC is a witness, in both colours: against a real server that counts
what it does.
"""

import asyncio
from concurrent import futures

import grpc
import grpc.aio
import pytest

from effectonce import ContractViolation, Guard, current_effect
from effectonce.http.client import protect
from tests.http.twice import DONE, DOUBT, FAILED_BEFORE, ONCE, aended, ended

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
REFUSALS = [
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
]
DOUBTS = [
    "UNAVAILABLE",
    "UNKNOWN",
    "INTERNAL",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "RESOURCE_EXHAUSTED",
    "CANCELLED",
]
LATER = ["ABORTED", "PERMISSION_DENIED", "UNAUTHENTICATED"]
KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
each_colour = pytest.mark.parametrize("colour", ["sync", "aio"])


class Shop(grpc.GenericRpcHandler):
    """Pays, and then ends with the status that was asked for. The path says which kind of call
    it is.
    """

    def __init__(self):
        self.paid = 0
        self.server = grpc.server(futures.ThreadPoolExecutor(4), handlers=(self,))
        self.at = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def service(self, details):
        kind = details.method.rpartition("/")[2]

        def pay(asked, context):
            request = asked if isinstance(asked, bytes) else b"".join(asked)
            if request != b"OK":
                context.abort(grpc.StatusCode[request.decode()], "no")
            self.paid += 1
            return b"paid"

        def pays(asked, context):
            yield pay(asked, context)

        handler = getattr(grpc, f"{kind}_rpc_method_handler")
        return handler(pays if kind.endswith("stream") else pay)


@pytest.fixture(scope="module")
def server():
    shop = Shop()
    yield shop
    shop.server.stop(None)


@pytest.fixture
def shop(server):
    server.paid = 0
    return server


def sync_call(channel, kind, status):
    call = getattr(channel, kind)(f"/shop/{kind}")
    answer = call(status if kind.startswith("unary") else iter([status]), timeout=30)
    return list(answer) if kind.endswith("stream") else answer


async def aio_call(channel, kind, status):
    call = getattr(channel, kind)(f"/shop/{kind}")
    answer = call(status if kind.startswith("unary") else iter([status]), timeout=30)
    return [part async for part in answer] if kind.endswith("stream") else await answer


def outcomes(colour, at, status=b"OK", kind="unary_unary", declare=True):
    """Return the outcomes of two calls of a tool that makes this request, and then fails."""
    if colour == "sync":
        with grpc.insecure_channel(at) as made:
            channel = protect(made)
            declared = {"through": channel} if declare else {}
            return ended(lambda: sync_call(channel, kind, status), **declared)

    async def main():
        async with grpc.aio.insecure_channel(at) as made:
            channel = protect(made)
            declared = {"through": channel} if declare else {}
            return await aended(lambda: aio_call(channel, kind, status), **declared)

    return asyncio.run(main())


@each_colour
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("declare", [True, False], ids=["through", "nothing declared"])
def test_a_call_that_was_answered_is_done_whatever_the_tool_makes_of_it(
    shop, colour, kind, declare
):
    assert outcomes(colour, shop.at, kind=kind, declare=declare) == DONE
    assert shop.paid == 1


@each_colour
@pytest.mark.parametrize("status", REFUSALS)
def test_a_refusal_is_a_failure_for_good(shop, colour, status):
    for declare in (True, False):
        assert outcomes(colour, shop.at, status.encode(), declare=declare)[1] == "ReplayedFailure"
    assert shop.paid == 0


@each_colour
@pytest.mark.parametrize("status", LATER)
def test_a_refusal_that_may_be_lifted_may_run_again(shop, colour, status):
    assert not {"ReplayedFailure", "InDoubt"} & set(outcomes(colour, shop.at, status.encode()))


@each_colour
@pytest.mark.parametrize("status", DOUBTS)
def test_all_else_is_a_doubt(shop, colour, status):
    assert outcomes(colour, shop.at, status.encode()) == DOUBT


@each_colour
@pytest.mark.parametrize("kind", KINDS[1:])
def test_so_it_is_for_streams(shop, colour, kind):
    assert outcomes(colour, shop.at, b"UNAVAILABLE", kind) == DOUBT
    assert outcomes(colour, shop.at, b"NOT_FOUND", kind)[1] == "ReplayedFailure"


@each_colour
def test_a_server_that_is_not_there_is_a_doubt_because_grpc_does_not_tell(colour, nobody):
    assert outcomes(colour, nobody.removeprefix("http://")) == DOUBT


def test_a_tool_that_fails_before_it_calls_may_run_again(shop):
    with grpc.insecure_channel(shop.at) as made:
        assert ended(lambda: None, kind="write", through=protect(made)) == FAILED_BEFORE


def test_a_future_is_looked_at_when_the_tool_has_ended(shop):
    with grpc.insecure_channel(shop.at) as made:
        channel = protect(made)
        call = channel.unary_unary("/shop/unary_unary")

        def forgets():
            call.future(b"OK", timeout=30).result()

        assert ended(forgets, kind="write", through=channel) == DONE
    assert shop.paid == 1


def test_a_stream_that_is_not_read_to_its_end_is_a_doubt(shop):
    with grpc.insecure_channel(shop.at) as made:
        channel, calls = protect(made), []

        def begins():
            calls.append(channel.stream_stream("/shop/stream_stream")(waits()))

        def waits():
            yield b"O"
            held.result(30)
            yield b"K"

        held = futures.Future()
        assert ended(begins, kind="write", through=channel) == DOUBT
        held.set_result(None)
        assert list(calls[0]) == [b"paid"]


# ---------------------------------------------------------------- what is protected


def test_a_channel_is_intercepted_once_and_before_others(shop):
    class Theirs(grpc.UnaryUnaryClientInterceptor):
        def intercept_unary_unary(self, continuation, details, request):
            return continuation(details, request)

    with grpc.insecure_channel(shop.at) as made:
        channel = protect(made)
        with pytest.raises(TypeError, match="protected already"):
            protect(channel)
        with pytest.raises(TypeError, match="Protect it first"):
            protect(grpc.intercept_channel(made, Theirs()))
        outside = grpc.intercept_channel(channel, Theirs())
        assert outside.unary_unary("/shop/unary_unary")(b"OK", timeout=30) == b"paid"
        with pytest.raises(ContractViolation, match="takes no policy"):
            protect(made, retry=ONCE)


def test_interceptors_of_a_channel_of_aio_stay_outside_of_ours(shop):
    guard, sends = Guard("memory://", cache=0), []

    class SendsTwice(grpc.aio.UnaryUnaryClientInterceptor):
        async def intercept_unary_unary(self, continuation, details, request):
            await (await continuation(details, request))
            sends.append(request)
            return await continuation(details, request)

    async def main():
        async with grpc.aio.insecure_channel(shop.at, interceptors=[SendsTwice()]) as made:
            channel = protect(made)
            assert channel is made
            with pytest.raises(TypeError, match="protected already"):
                protect(channel)

            @guard.tool(kind="write", through=channel)
            async def work(order: int) -> None:
                await aio_call(channel, "unary_unary", b"OK")
                raise ValueError("my own parsing")

            with guard.step("chat", "work"), pytest.raises(Exception, match="in doubt"):
                await work(1)

    asyncio.run(main())
    assert (shop.paid, sends) == (2, [b"OK"])


@each_colour
def test_a_call_outside_sending_is_on_the_record_before_it_leaves(shop, colour):
    """Its tool declares separate_dispatch and knows sending(): a crash meanwhile must not let it
    run again.
    """
    guard, states = Guard("memory://", cache=0), []
    declared = {"kind": "write", "separate_dispatch": True, "retry": ONCE}

    def state():
        return str(guard.find(current_effect().key).state)

    def sync(channel):
        @guard.tool(**declared)
        def work(order: int) -> None:
            states.append(state())
            sync_call(channel, "unary_unary", b"OK")
            states.append(state())
            with current_effect().sending():
                pass

        work(1)

    async def aio():
        async with grpc.aio.insecure_channel(shop.at) as made:
            channel = protect(made)

            @guard.tool(**declared)
            async def work(order: int) -> None:
                states.append(state())
                await aio_call(channel, "unary_unary", b"OK")
                states.append(state())
                async with current_effect().sending():
                    pass

            await work(1)

    with guard.step("chat", "work"):
        if colour == "sync":
            with grpc.insecure_channel(shop.at) as made:
                sync(protect(made))
        else:
            asyncio.run(aio())

    assert states == ["claimed", "dispatched"]
