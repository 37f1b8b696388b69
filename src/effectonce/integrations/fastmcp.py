"""For a server that is made with FastMCP: every call of a tool lands once, however often it is
repeated.

    mcp = FastMCP("bank")
    contracts = {"refund": {"kind": "irreversible"}, "balance": {"kind": "read"}}
    mcp.add_middleware(EffectOnce(guard, contracts=contracts))

A tool without a contract is a write that is sent once. Other middleware may stand on either
side: one that tries again, or makes a result of an error, gets the result of the one run of the
tool, and that is what is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from effectonce.guard import Guard
from effectonce.integrations._single_run import SingleRun, stand_around
from effectonce.mcp._in_server import Hosted, Wire

if TYPE_CHECKING:
    from fastmcp.server.middleware import Middleware


def EffectOnce(
    guard: Guard,
    *,
    contracts: Mapping[str, Mapping[str, Any]] | None = None,
    defaults: Mapping[str, Any] | None = None,
    name: str = "mcp",
    tenant: Callable[[Any], str] | None = None,
) -> Middleware:
    """A middleware that makes the calls of a server's tools effects of *guard*.

    *contracts* are what a contract file has under `tools`, *defaults* what holds for all. *name*
    keeps apart two servers that share a guard. *tenant* says whose call it is, from the
    middleware's context, and "" that all are one. Without it, that is whom the access token
    stands for; over HTTP without a token, all that the request carries and that may be a
    credential; then its session. A call over HTTP that has none of these is refused.
    """
    try:
        # only a server of FastMCP needs it
        from fastmcp.server.dependencies import get_access_token  # noqa: PLC0415
        from fastmcp.server.middleware import Middleware  # noqa: PLC0415
        from fastmcp.tools.base import ToolResult  # noqa: PLC0415
        from mcp_types import CallToolResult  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            f"{error}. Install FastMCP, version 4 or later: pip install 'effectonce[fastmcp]'"
        ) from None
    hosted = Hosted(guard, name, contracts or {}, defaults or {})

    class _ToolMiddleware(Middleware):
        async def on_call_tool(self, context: Any, call_next: Any) -> Any:
            params, ours = context.message, context.fastmcp_context
            request = None if ours is None else ours.request_context
            meta = params.meta
            if meta is None and request is not None:
                meta = request.meta

            async def whose() -> str:
                if tenant is not None:
                    return tenant(context)
                http = None if request is None else request.request
                return await hosted.caller(get_access_token(), http)

            async def proceed() -> Any:
                return await one.aask(lambda: call_next(context))

            one = _one_run(ours)
            try:
                own, answer = await hosted.call(
                    params.name, params.arguments, meta, whose, proceed, _wire
                )
            except Exception as error:  # the tool's own, and definite
                instead = one.instead_of(error)
                if instead is None:
                    raise
                return instead
            if answer is None:
                return own
            return ToolResult.from_mcp_result(CallToolResult.model_validate(answer))

    return _ToolMiddleware()


def _one_run(context: Any) -> SingleRun:
    """Of the tool: the server calls itself for it, when all middleware has had its say."""
    if context is None:
        return SingleRun()
    stand_around(
        context.fastmcp, "call_tool", where=lambda given: given.get("run_middleware") is False
    )
    return SingleRun(context.fastmcp)


def _wire(result: Any) -> Wire:
    """As it will be on the wire. A request for input is no result."""
    if hasattr(result, "input_required"):
        return {"resultType": "input_required"}
    how: Any = {"by_alias": True, "mode": "json", "exclude_none": True}
    content = [part.model_dump(**how) for part in result.content]
    made: Wire = {"content": content, "isError": result.is_error}
    if result.structured_content is not None:
        made["structuredContent"] = result.structured_content
    return made if result.meta is None else made | {"_meta": result.meta}
