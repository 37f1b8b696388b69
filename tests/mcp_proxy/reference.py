"""A server with something of everything, for the official conformance suite: `reference.py`
prints its port. See `conformance.py`.
"""

from __future__ import annotations

import base64
import contextlib
import socket

import mcp_types as types
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

# 1 x 1
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SILENCE = base64.b64encode(
    b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00"
).decode()
server = MCPServer("reference")


def embedded(uri):
    return types.EmbeddedResource(
        resource=types.TextResourceContents(uri=uri, mime_type="text/plain", text="embedded")
    )


def text(words):
    return types.TextContent(text=words)


def image():
    return types.ImageContent(data=PIXEL, mime_type="image/png")


# ---------------------------------------------------------------- tools


@server.tool()
def test_simple_text() -> str:
    """Say something."""
    return "This is a simple text response for testing."


@server.tool()
def test_image_content() -> list:
    """Show something."""
    return [image()]


@server.tool()
def test_audio_content() -> list:
    """Let hear something."""
    return [types.AudioContent(data=SILENCE, mime_type="audio/wav")]


@server.tool()
def test_embedded_resource() -> list:
    """Hand over something."""
    return [embedded("test://embedded-resource")]


@server.tool()
def test_multiple_content_types() -> list:
    """Some of each."""
    return [
        text("Multiple content types test:"),
        image(),
        embedded("test://mixed-content-resource"),
    ]


@server.tool()
async def test_tool_with_logging(ctx: Context) -> str:
    """Say what is done meanwhile."""
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message(level="info", data=words)
    return "done"


@server.tool()
async def test_tool_with_progress(ctx: Context) -> str:
    """Say how far it is."""
    for progress in (0, 50, 100):
        await ctx.report_progress(progress, 100)
    return "done"


@server.tool()
def test_error_handling() -> str:
    """Fail, always."""
    raise RuntimeError("This tool intentionally returns an error for testing")


class Name(BaseModel):
    name: str


@server.tool()
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user."""
    answer = await ctx.elicit(message, Name)
    return f"User response: {answer.action}"


@server.tool()
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the model."""
    asked = types.SamplingMessage(role="user", content=text(prompt))
    answer = await ctx.session.create_message([asked], max_tokens=100)
    return f"LLM response: {answer.content}"


def ask(field, message):
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


@server.tool()
def test_input_required_result_elicitation(ctx: Context) -> types.InputRequiredResult | str:
    """Ask for a name, and greet in the next round."""
    given = ctx.input_responses or {}
    if "user_name" not in given:
        return types.InputRequiredResult(
            input_requests={"user_name": ask("name", "What is your name?")}
        )
    return f"Hello, {given['user_name'].content['name']}!"


@server.tool()
def test_input_required_result_request_state(ctx: Context) -> types.InputRequiredResult | str:
    """Remember something by handing it out."""
    if ctx.request_state is None:
        return types.InputRequiredResult(
            input_requests={"confirm": ask("ok", "Please confirm")}, request_state="remembered"
        )
    return "state-ok: it came back"


@server.tool()
def test_input_required_result_multi_round(ctx: Context) -> types.InputRequiredResult | str:
    """Three rounds."""
    if ctx.request_state is None:
        return types.InputRequiredResult(
            input_requests={"step1": ask("name", "Step 1: your name?")}, request_state="one"
        )
    if ctx.request_state == "one":
        return types.InputRequiredResult(
            input_requests={"step2": ask("color", "Step 2: your colour?")}, request_state="two"
        )
    return "all three rounds are done"


# ---------------------------------------------------------------- resources and prompts


@server.resource("test://static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that does not change."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """Bytes that do not change."""
    return base64.b64decode(PIXEL)


@server.resource("test://template/{id}/data", mime_type="application/json")
def template(id: str) -> str:  # noqa: A002  # the suite's name for it
    """Data by its id."""
    return f'{{"id": "{id}", "templateTest": true, "data": "Data for ID: {id}"}}'


@server.prompt()
def test_simple_prompt() -> str:
    """A prompt."""
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


def main():
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        # h11 takes the space around the value of a header away; httptools, which uvicorn
        # prefers, does not, and the server fails for it.
        config = uvicorn.Config(server.streamable_http_app(), http="h11", log_level="error")
        uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main()
