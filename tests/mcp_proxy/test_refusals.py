"""What a server says before it calls a tool is no doubt; what a tool says after it ran is one,
however it is worded.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp import Client

from effectonce.mcp._refusals import was_refused
from effectonce.mcp._schema import misfits
from tests.mcp_proxy.conftest import proxied
from tests.mcp_proxy.test_http import ERAS, world

__all__ = ["world"]  # a fixture

REFUSING = Path(__file__).parent / "refusing.py"
GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def doubt_in(result):
    return "dev.effectonce/error" in result.get("_meta", {})


@pytest.fixture(params=["mcp", "fastmcp"])
def sdk(stage, request):
    command = [sys.executable, str(REFUSING), request.param, str(stage.bank.port)]
    client = stage._opened(proxied(command, "--store", f"sqlite:///{stage.folder / 'effects.db'}"))
    client.answer(client.request("initialize", GREETING))
    client.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    return client


def test_refusals_of_the_sdks_pass_and_a_corrected_call_runs(stage, sdk):
    wrong = [sdk.result("refund", {"payment_id": "p"}) for _ in range(2)]
    mistyped = sdk.result("refund", {"payment_id": "p", "amount_minor": "seven"})
    unknown = [sdk.result("refnud", {"payment_id": "p"}) for _ in range(2)]
    right = sdk.result("refund", {"payment_id": "p", "amount_minor": 7})

    assert [result["isError"] for result in (*wrong, mistyped, *unknown)] == [True] * 5
    assert not any(doubt_in(result) for result in (*wrong, mistyped, *unknown))
    assert right["isError"] is False
    assert stage.effects("p") == 1


@pytest.mark.parametrize("code", ["MCP error -32602: ", ""])
@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (
            "typed",
            "Input validation error: Invalid arguments for tool typed: expected number at amount",
        ),
        ("typed", "Input validation error: 'amount' is a required property"),
        ("hidden", "Tool hidden not found"),
        ("hidden", "Tool hidden disabled"),
    ],
)
def test_refusals_in_the_words_of_other_sdks_pass(stage, tool, words, code):
    client = stage.client()

    results = [client.result(tool, {"words": code + words}) for _ in range(2)]

    assert results == [{"content": [{"type": "text", "text": code + words}], "isError": True}] * 2
    assert stage.effects() == 0


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (
            "typed",
            "Input validation error: Invalid arguments for tool typed: expected number at amount",
        ),
        ("typed", "Error executing tool typed: 1 validation error for typedArguments\namount"),
        ("set", "Unknown tool: set"),
        ("set", "MCP error -32602: Tool set not found"),
    ],
)
def test_a_tool_that_was_called_as_its_schema_says_is_not_believed(stage, tool, words):
    client = stage.client()

    first, again = (client.result(tool, {"amount": 1, "words": words}) for _ in range(2))

    assert doubt_in(first)
    assert doubt_in(again)
    assert stage.effects() == 1


@pytest.mark.parametrize(
    "words", ["Input invalid", "the refund was made. Unknown tool: hidden", "Unknown tool: other"]
)
def test_words_of_no_sdk_are_a_doubt_whatever_the_arguments_are(stage, words):
    client = stage.client()

    assert doubt_in(client.result("hidden", {"words": words}))


def test_no_list_no_belief(stage):
    client = stage.client()
    client.answer(client.request("x/no-list"))

    assert doubt_in(client.result("hidden", {"words": "Tool hidden not found"}))


@pytest.mark.parametrize("era", ERAS)
def test_refusals_over_http_pass_and_a_corrected_call_runs(world, era):  # the fixture
    async def story(url):
        async with Client(url, mode=era) as client:
            called = [
                ("refund", {}),
                ("refund", {"payment_id": 3}),
                ("refnud", {}),
                ("refund", {"payment_id": url}),
            ]
            return [await client.call_tool(name, arguments) for name, arguments in called]

    direct, through = (anyio.run(story, url) for url in (world.direct, world.url))

    assert [result.is_error for result in through] == [True, True, True, False]
    assert through[:3] == direct[:3]
    assert world.effects(world.url) == 1


# ---------------------------------------------------------------- does it fit?

DEFS = {"$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}}}


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ({}, {"required": ["a"]}),
        ({"a": 1}, {"properties": {"a": {"type": "string"}}}),
        ({"a": 1, "b": 2}, {"properties": {"a": {}}, "additionalProperties": False}),
        ({"b": 2}, {"additionalProperties": {"type": "string"}}),
        ([1, "x"], {"items": {"type": "integer"}}),
        ("c", {"enum": ["a", "b"]}),
        (1, {"const": 2}),
        (1.5, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (1, {"oneOf": [{"type": "string"}, {"type": "null"}]}),
        (1, {"allOf": [{"type": "integer"}, {"type": "string"}]}),
        ("b", {"pattern": "^a"}),
        (1, {"minimum": 2}),
        (3, {"maximum": 2}),
        (2, {"exclusiveMinimum": 2}),
        (2, {"exclusiveMaximum": 2}),
        ("a", {"minLength": 2}),
        ("abc", {"maxLength": 2}),
        ([], {"minItems": 1}),
        ([1, 2], {"maxItems": 1}),
        ("x", DEFS | {"$ref": "#/$defs/n"}),
        (True, {"type": ["integer", "string"]}),
        (None, {"type": "object"}),
        (1, {"type": "boolean"}),
        (1, {"type": "array"}),
    ],
)
def test_what_certainly_does_not_fit_is_found(value, schema):
    assert not Draft202012Validator(schema).is_valid(value)
    assert misfits(value, schema)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        {"type": "no such type"},
        {"$ref": "https://example.com/schema"},
        {"$ref": "#/$defs/none"},
        DEFS | {"$ref": "#/$defs/loop"},
        {"pattern": "(?<"},
        {"required": "a", "properties": ["a"], "enum": None, "allOf": 3, "anyOf": []},
        {"patternProperties": {"^b": {}}, "additionalProperties": False},
    ],
)
@pytest.mark.parametrize("value", [{"b": 1}, "text"])
def test_what_is_not_understood_counts_as_fitting(value, schema):
    assert not misfits(value, schema)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.text("ab", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    ),
    max_leaves=5,
)
types = st.sampled_from(["string", "number", "integer", "boolean", "null", "array", "object"])
schemas = st.recursive(
    st.fixed_dictionaries(
        {}, optional={"type": types, "minimum": st.integers(-3, 3), "maxLength": st.integers(0, 3)}
    )
    | st.fixed_dictionaries({"enum": st.lists(json_values, max_size=3)}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
            "required": st.lists(st.sampled_from("ab"), unique=True),
            "additionalProperties": st.booleans() | inner,
            "items": inner,
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "oneOf": st.lists(inner, min_size=1, max_size=2),
            "allOf": st.lists(inner, min_size=1, max_size=2),
        },
    ),
    max_leaves=5,
)


@given(value=json_values, schema=schemas)
def test_nothing_that_fits_is_called_a_misfit(value, schema):
    if misfits(value, schema):
        assert not Draft202012Validator(schema).is_valid(value), json.dumps([value, schema])


@pytest.mark.parametrize(("name", "refused"), [("pay", False), ("mail", False), ("ship", True)])
def test_a_tool_of_any_page_of_the_list_is_known(name, refused):
    pages = {
        None: {"tools": [{"name": "pay"}], "nextCursor": "2"},
        "2": {"tools": [{"name": "mail"}]},
    }
    result = {"isError": True, "content": [{"type": "text", "text": f"Unknown tool: {name}"}]}

    async def request(method, params):
        return pages[params.get("cursor")]

    assert asyncio.run(was_refused(result, name, {}, request)) is refused
