"""gRPC statuses, and the JSON-RPC codes of MCP."""

from effectonce._core.classification.tables._row import B, M, R, Table, cls, code, finish, text

GRPC = Table(
    name="grpc",
    checked="grpcio 1.85",
    packages=("grpc",),
    headers=("grpc-",),
    rows=(
        code(
            "UNAVAILABLE",
            B.NO_ANSWER,
            M,
            "not sent only if the connection never came about, which is not reported",
        ),
        code(
            "RESOURCE_EXHAUSTED",
            B.RATE_LIMIT,
            M,
            "also raised on this side, for an answer that is too large",
        ),
        code("DEADLINE_EXCEEDED", B.NO_ANSWER, M),
        code("UNKNOWN INTERNAL DATA_LOSS", B.SERVER_ERROR, M),
        code("ABORTED", B.CONFLICT, R, "repeat the whole transaction"),
        code("CANCELLED", B.CANCELLED, M),
        code(
            "ALREADY_EXISTS",
            B.CONFLICT,
            R,
            "it is there already, perhaps from an earlier attempt: look",
            retry=False,
        ),
        code("FAILED_PRECONDITION INVALID_ARGUMENT OUT_OF_RANGE UNIMPLEMENTED", B.SCHEMA, R),
        code("NOT_FOUND", B.NOT_FOUND, R),
        code("PERMISSION_DENIED UNAUTHENTICATED", B.AUTH, R),
        cls("RpcError", B.NO_ANSWER, M, weak=True),
        text(
            "message larger than max | sent message larger",
            B.SCHEMA,
            why="the message is larger than it may be",
        ),
    ),
)
MCP = Table(
    name="mcp",
    checked="mcp 2.3",
    packages=("mcp", "mcp_types"),
    rows=(
        code("-32000", B.NO_ANSWER, M, "the connection was closed"),
        code("-32001", B.NO_ANSWER, M, "the request timed out"),
        code("-32603", B.SERVER_ERROR, M),
        code("-32700 -32600 -32601 -32602", B.SCHEMA, R),
        code("-32020 -32021 -32022", B.CONFIG, R),
        code("-32042", B.CONTROL_FLOW, R, "a person has to open a URL first"),
        finish("isError", B.TOOL_ERROR, M, "the tool ran and reports an error: replan"),
        cls("UrlElicitationRequiredError", B.CONTROL_FLOW, R, "a person has to open a URL first"),
        cls("ToolError ToolNotFoundError", B.TOOL_ERROR, M),
    ),
)
TABLES = (GRPC, MCP)
