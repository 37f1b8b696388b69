"""An agent of LangChain whose run is lost after the bank said yes. Asked again, it decides
again; the customer has one refund.

    pip install 'effectonce[langchain]'
    python examples/langchain_agent.py

The model is a script, so this needs no network. The bank is a process of its own, and honours no
keys: what is sent twice is paid twice.
"""

import tempfile
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from effectonce import Guard
from effectonce.integrations.langchain import EffectOnce
from effectonce.testing.bank import Bank


class Script(BaseChatModel):
    """A model with a script."""

    lines: list[AIMessage]

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Any, **_: Any) -> "Script":
        return self

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self.lines.pop(0))])


def asks(call_id: str, reason: str) -> AIMessage:
    """The model asks for a refund: each time with another id, and in other words."""
    arguments = {"payment_id": "pay_7", "amount_minor": 1_400_000, "reason": reason}
    return AIMessage("", tool_calls=[{"id": call_id, "name": "refund", "args": arguments}])


with tempfile.TemporaryDirectory() as folder, Bank(Path(folder, "ledger")) as bank:
    guard = Guard(f"sqlite:///{folder}/effects.db", spool=Path(folder, "spool"))

    @tool
    def refund(payment_id: str, amount_minor: int, reason: str) -> str:
        """Refund a payment."""
        return bank.pay(payment_id, amount_minor)["receipt"]

    once = EffectOnce(guard, contracts={"refund": {"kind": "irreversible", "volatile": ["reason"]}})
    thread = {"configurable": {"thread_id": "chat-42"}}
    for line in (asks("call_1", "late delivery"), asks("call_2", "the parcel was late")):
        # A saver of its own each time: the first run is lost with all that it had saved.
        agent = create_agent(
            Script(lines=[line, AIMessage("done")]),
            [refund],
            middleware=[once],
            checkpointer=InMemorySaver(),
        )
        result = agent.invoke({"messages": [HumanMessage("refund pay_7, please")]}, thread)
        print("the model got:", result["messages"][-2].content)
    print("refunds in the bank's ledger:", len(bank.ledger()))
    guard.close()
