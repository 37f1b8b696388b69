"""gRPC over a real channel, and MCP's errors."""

from concurrent import futures

import pytest

from effectonce import classify
from tests.vendors.helpers import raised, says

pytestmark = pytest.mark.filterwarnings("ignore")

STATUSES = {
    "UNAVAILABLE": "no_answer M",
    "RESOURCE_EXHAUSTED": "rate_limit M",
    "DEADLINE_EXCEEDED": "no_answer M",
    "UNKNOWN": "server_error M",
    "INTERNAL": "server_error M",
    "DATA_LOSS": "server_error M",
    "ABORTED": "conflict R",
    "CANCELLED": "cancelled M",
    "ALREADY_EXISTS": "conflict R",
    "FAILED_PRECONDITION": "schema R",
    "INVALID_ARGUMENT": "schema R",
    "OUT_OF_RANGE": "schema R",
    "UNIMPLEMENTED": "schema R",
    "NOT_FOUND": "not_found R",
    "PERMISSION_DENIED": "auth R",
    "UNAUTHENTICATED": "auth R",
}


@pytest.fixture(scope="module")
def call():
    """Call a server that answers with the status it is asked for."""
    import grpc

    class Echo(grpc.GenericRpcHandler):
        def service(self, details):
            def fail(request, context):
                name, text, pushback = request.decode().split("|")
                if pushback:
                    context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback),))
                context.abort(grpc.StatusCode[name], text)

            return grpc.unary_unary_rpc_method_handler(fail)

    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=(Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_retries", 0)])
    method = channel.unary_unary("/s/m")
    yield lambda name, text="no", pushback="": raised(
        lambda: method(f"{name}|{text}|{pushback}".encode(), timeout=60)
    )
    channel.close()
    server.stop(None)


@pytest.mark.parametrize("name", STATUSES)
def test_every_status_over_a_real_channel(call, name):
    found = call(name)

    assert found.code().name == name
    assert says(found) == STATUSES[name]


def test_what_is_there_already_is_looked_up_not_repeated(call):
    assert not classify(call("ALREADY_EXISTS")).retryable


def test_the_server_may_push_back(call):
    assert says(call("UNAVAILABLE", pushback="1500")) == "no_answer M 1.5 s"
    for never in ("-1", "soon"):
        assert not classify(call("UNAVAILABLE", pushback=never)).retryable


def test_a_message_that_is_too_large_is_no_rate_limit(call):
    text = "CLIENT: Received message larger than max (5 vs. 4)"
    assert says(call("RESOURCE_EXHAUSTED", text)) == "schema M"
    assert says(call("RESOURCE_EXHAUSTED", "Quota exceeded for quota metric")) == "quota M"


def test_a_server_that_is_not_there(nobody):
    import grpc

    with grpc.insecure_channel(nobody.removeprefix("http://")) as channel:
        assert says(raised(lambda: channel.unary_unary("/s/m")(b"", timeout=60))) == "no_answer M"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (-32000, "no_answer M"),
        (-32001, "no_answer M"),
        (-32603, "server_error M"),
        (-32700, "schema R"),
        (-32600, "schema R"),
        (-32601, "schema R"),
        (-32602, "schema R"),
        (-32020, "config R"),
        (-32021, "config R"),
        (-32022, "config R"),
        (-32042, "control_flow R"),
    ],
)
def test_the_codes_of_mcp(code, expected):
    from mcp import MCPError

    assert says(MCPError(code, "no")) == expected
    assert (
        says({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no"}})
        == expected[:-1] + "M"
    )


def test_a_tool_of_mcp_that_reports_an_error_asks_the_model_to_replan():
    from mcp.types import CallToolResult, TextContent

    failed = CallToolResult(content=[TextContent(type="text", text="no such order")], isError=True)
    assert says(failed) == "tool_error M"
    assert not classify(failed).retryable
