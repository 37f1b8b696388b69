"""Agents of each SDK with a scripted model, as `tests/frameworks/facts.py` runs them."""

import asyncio
import copy
import inspect
import json
from functools import wraps

import httpx2
from agents import Agent as OpenAIAgent
from agents import ModelResponse as OpenAIResponse
from agents import RunConfig, Runner, Usage, function_tool
from agents.models.interface import Model
from anthropic import Anthropic, APIConnectionError, AsyncAnthropic, beta_async_tool, beta_tool
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from effectonce.integrations import anthropic_runner, langchain, openai_agents, pydantic_ai
from tests.frameworks.facts import CONTRACTS, DONE, Ran, readable
from tests.integrations.agents.langchain_models import Scripted

GIVEN = "refund pay_7"


class Desk:
    """What the desks have in common: the history of each conversation."""

    def __init__(self, guard, mode="async"):
        self.guard, self.mode, self.histories = guard, mode, {}

    def run(self, tool, *lines, scope="chat-42", forget=False, contracts=CONTRACTS, **options):
        if forget:
            self.histories.clear()
        history = self.histories.get(scope, [])
        told, self.histories[scope] = self.converse(
            tool, lines, scope, history, contracts, **options
        )
        return Ran([(call_id, readable(said)) for call_id, said in told])


def synchronous(function):
    """The same function without waiting, as sync code runs it."""
    if not inspect.iscoroutinefunction(function):
        return function

    @wraps(function)
    def without_waiting(*args, **kwargs):
        return asyncio.run(function(*args, **kwargs))

    return without_waiting


class LangchainDesk(Desk):
    def tool(self, function):
        return langchain_tool(synchronous(function) if self.mode == "sync" else function)

    def converse(self, tool, lines, scope, history, contracts, *, middleware=None):
        self.model = Scripted(lines=[self.line(line) for line in lines])
        if middleware is None:
            middleware = [langchain.EffectOnce(self.guard, contracts=contracts)]
        saver = InMemorySaver() if scope else None
        agent = create_agent(self.model, [tool], middleware=middleware, checkpointer=saver)
        config = {"configurable": {"thread_id": scope}} if scope else {}
        given = {"messages": [*history, HumanMessage(GIVEN)]}
        if self.mode == "sync":
            result = agent.invoke(given, config)
        else:
            result = asyncio.run(agent.ainvoke(given, config))
        messages = result["messages"]
        new = [each for each in messages[len(history) :] if isinstance(each, ToolMessage)]
        return [(each.tool_call_id, each.text) for each in new], messages

    @staticmethod
    def line(line):
        if line == DONE:
            return AIMessage("done")
        if isinstance(line, Exception):
            return line
        calls = [{"id": ask.call_id, "name": "refund", "args": ask.arguments} for ask in line]
        return AIMessage("", tool_calls=calls)

    def schemas(self, tool, *, protected):
        self.run(tool, DONE, middleware=None if protected else [], forget=True)
        return self.model.bound


class OpenAIScript(Model):
    """A model that says its lines."""

    def __init__(self, *lines):
        self.lines, self.schemas, self.seen = list(lines), [], []

    async def get_response(self, system_instructions, input, model_settings, tools, *_, **__):  # noqa: A002
        self.schemas = [(tool.name, tool.description, tool.params_json_schema) for tool in tools]
        self.seen.append(copy.deepcopy(input))
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return OpenAIResponse(output=line, usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


TEXT = ResponseOutputText(type="output_text", text="done", annotations=[])
OPENAI_DONE = [
    ResponseOutputMessage(
        id="m", type="message", role="assistant", status="completed", content=[TEXT]
    )
]


def openai_call(call_id, arguments, name="refund"):
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    return ResponseFunctionToolCall(
        type="function_call", call_id=call_id, name=name, arguments=arguments
    )


class OpenAIDesk(Desk):
    def tool(self, function):
        return function_tool(function)

    def converse(self, tool, lines, scope, history, contracts, *, protected=True, **options):
        said = [self.line(line) for line in lines]
        agent = OpenAIAgent(name="desk", model=OpenAIScript(*said), tools=[tool], **options)
        if protected:
            agent = openai_agents.protect(agent, self.guard, contracts=contracts)
        self.model = agent.model
        given = [*history, {"role": "user", "content": GIVEN}]
        config = RunConfig(group_id=scope, tracing_disabled=True)
        result = asyncio.run(Runner.run(agent, given, run_config=config)).to_input_list()
        new = [each for each in result[len(given) :] if each.get("type") == "function_call_output"]
        return [(each["call_id"], each["output"]) for each in new], result

    @staticmethod
    def line(line):
        if line == DONE:
            return OPENAI_DONE
        if isinstance(line, Exception):
            return line
        return [openai_call(ask.call_id, ask.arguments) for ask in line]

    def schemas(self, tool, *, protected):
        self.run(tool, DONE, protected=protected, forget=True)
        return self.model.schemas


class PydanticDesk(Desk):
    def tool(self, function):
        return function

    def converse(self, tool, lines, scope, history, contracts, *, once=None, **options):
        said = list(lines)

        def model(_, info):
            self.seen = [
                (each.name, each.description, each.parameters_json_schema)
                for each in info.function_tools
            ]
            return self.response(said.pop(0))

        if once is None:
            guarded = [tool] if contracts is None else ()
            once = [pydantic_ai.EffectOnce(self.guard, contracts=contracts, guarded=guarded)]
        agent = Agent(FunctionModel(model), tools=[tool], capabilities=once, **options)
        result = asyncio.run(agent.run(GIVEN, conversation_id=scope, message_history=history))
        parts = [part for message in result.new_messages() for part in message.parts]
        new = [part for part in parts if isinstance(part, ToolReturnPart)]
        return [(part.tool_call_id, part.content) for part in new], result.all_messages()

    @staticmethod
    def response(line):
        if line == DONE:
            return ModelResponse(parts=[TextPart("done")])
        if isinstance(line, Exception):
            raise line
        calls = [ToolCallPart("refund", ask.arguments, tool_call_id=ask.call_id) for ask in line]
        return ModelResponse(parts=calls)

    def schemas(self, tool, *, protected):
        self.run(tool, DONE, once=None if protected else [], forget=True)
        return self.seen


class AnthropicServer:
    """The other side of the wire: it says its lines."""

    def __init__(self, *lines):
        self.lines, self.requests = list(lines), []

    def __call__(self, request):
        self.requests.append(json.loads(request.content))
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        calls = [] if line == DONE else line
        content = [
            {"type": "tool_use", "id": ask.call_id, "name": "refund", "input": ask.arguments}
            for ask in calls
        ]
        message = {
            "id": f"msg_{len(self.requests)}",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": content or [{"type": "text", "text": "done"}],
            "usage": {"input_tokens": 1, "output_tokens": 1},
            "stop_reason": "tool_use" if calls else "end_turn",
            "stop_sequence": None,
        }
        return httpx2.Response(200, json=message)


class AnthropicDesk(Desk):
    def tool(self, function):
        if self.mode == "sync":
            return beta_tool(synchronous(function))
        return beta_async_tool(function) if inspect.iscoroutinefunction(function) else None

    def converse(self, tool, lines, scope, history, contracts):
        self.server = AnthropicServer(*lines)
        given = {
            "model": "m",
            "max_tokens": 100,
            "messages": [*history, {"role": "user", "content": GIVEN}],
            "conversation": scope,
            "contracts": contracts,
            "tools": [tool],
        }
        try:
            thread = self.sync(given) if self.mode == "sync" else asyncio.run(self.awaited(given))
        except APIConnectionError as error:
            raise error.__cause__ from error
        blocks = [
            block
            for message in thread[len(history) :]
            for block in message["content"]
            if isinstance(block, dict) and block["type"] == "tool_result"
        ]
        return [(block["tool_use_id"], self.text_of(block["content"])) for block in blocks], thread

    def sync(self, given):
        with httpx2.Client(transport=httpx2.MockTransport(self.server)) as wire:
            client = Anthropic(api_key="none", http_client=wire, max_retries=0)
            runner = anthropic_runner.protect(client, self.guard, **given)
            runner.until_done()
        return list(runner._thread.messages)  # the wire carries only what is new

    async def awaited(self, given):
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(self.server)) as wire:
            client = AsyncAnthropic(api_key="none", http_client=wire, max_retries=0)
            runner = anthropic_runner.protect(client, self.guard, **given)
            await runner.until_done()
        return list(runner._thread.messages)

    @staticmethod
    def text_of(content):
        return content if isinstance(content, str) else content[0]["text"]

    def schemas(self, tool, *, protected):
        if not protected:
            return [tool.to_dict()]
        self.run(tool, DONE, forget=True)
        return self.server.requests[0]["tools"]


DESKS = {
    "langchain": LangchainDesk,
    "langchain sync": lambda guard: LangchainDesk(guard, "sync"),
    "openai agents": OpenAIDesk,
    "pydantic ai": PydanticDesk,
    "anthropic": AnthropicDesk,
    "anthropic sync": lambda guard: AnthropicDesk(guard, "sync"),
}
