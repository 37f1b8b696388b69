"""For a server that is made with the MCP SDK: every call of a tool lands once, however often it
is repeated.

    contracts = {"refund": {"kind": "irreversible"}, "balance": {"kind": "read"}}
    MCPServer("bank", extensions=[EffectOnce(guard, contracts=contracts)])

A tool without a contract is a write that is sent once. Inside a tool
`current_effect().downstream_key` is the key to hand on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from effectonce.guard import Guard
from effectonce.mcp._in_server import Hosted, Wire

if TYPE_CHECKING:
    from mcp.server.extension import Extension


def EffectOnce(
    guard: Guard,
    *,
    contracts: Mapping[str, Mapping[str, Any]] | None = None,
    defaults: Mapping[str, Any] | None = None,
    name: str = "mcp",
    tenant: Callable[[Any], str] | None = None,
) -> Extension:
    """An extension of `MCPServer` that makes the calls of its tools effects of *guard*.

    *contracts* are what a contract file has under `tools`, *defaults* what holds for all. *name*
    keeps apart two servers that share a guard. *tenant* says whose call it is, from the context
    of the request, and "" that all are one. Without it, that is whom the access token stands
    for; over HTTP without a token, all that the request carries and that may be a credential;
    then its session. A call over HTTP that has none of these is refused.
    """
    try:
        # only a server of the SDK needs it
        from mcp.server.auth.middleware.auth_context import get_access_token  # noqa: PLC0415
        from mcp.server.extension import Extension  # noqa: PLC0415
        from mcp_types import CallToolResult  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(
            f"{error}. Install the SDK, version 2 or later: pip install 'effectonce[mcp]'"
        ) from None
    hosted = Hosted(guard, name, contracts or {}, defaults or {})

    class _ToolExtension(Extension):
        identifier = "dev.effectonce/idempotency"

        async def intercept_tool_call(self, params: Any, ctx: Any, call_next: Any) -> Any:
            async def whose() -> str:
                if tenant is not None:
                    return tenant(ctx)
                return await hosted.caller(get_access_token(), ctx.request)

            own, answer = await hosted.call(
                params.name, params.arguments, ctx.meta, whose, lambda: call_next(ctx), _wire
            )
            if answer is None:
                return own
            # a task is what it is
            return CallToolResult.model_validate(answer) if "content" in answer else answer

    return _ToolExtension()


def _wire(result: Any) -> Wire:
    if result is None or isinstance(result, dict):
        return result or {}
    made: Wire = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return made
