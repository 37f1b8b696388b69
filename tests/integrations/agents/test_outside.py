"""Tools of agents, without their agents: asked about by a probe, and redriven from their
letters, with the arguments of the model.
"""

import asyncio
from functools import partial

import httpx2
import pytest
from agents import Agent
from anthropic import Anthropic

from effectonce import ContractViolation, Found, Guard, NotFound, NotSent, current_effect
from effectonce.integrations.anthropic_runner import protect as protect_anthropic_runner
from effectonce.integrations.langchain import EffectOnce
from effectonce.integrations.openai_agents import protect
from effectonce.integrations.pydantic_ai import EffectOnce as PydanticAiOnce
from tests.frameworks.facts import DONE, one
from tests.integrations.agents.desks import DESKS

ASKED = {"payment_id": "pay_7", "amount_minor": 100, "reason": "late"}


def declared_to_anthropic(guard, contracts):
    with httpx2.Client() as wire:
        client = Anthropic(api_key="none", http_client=wire)
        asked = {"model": "m", "max_tokens": 100, "messages": [], "conversation": "chat-42"}
        protect_anthropic_runner(client, guard, contracts=contracts, tools=[], **asked)


SDKS = {
    "langchain sync": lambda guard, contracts: EffectOnce(guard, contracts=contracts),
    "openai agents": lambda guard, contracts: protect(
        Agent(name="desk"), guard, contracts=contracts
    ),
    "pydantic ai": lambda guard, contracts: PydanticAiOnce(guard, contracts=contracts),
    "anthropic sync": declared_to_anthropic,
}


@pytest.fixture(params=SDKS)
def sdk(request):
    return request.param


@pytest.fixture
def ask(sdk):
    return partial(asked_by_an_agent, sdk)


def asked_by_an_agent(sdk, guard, work, options):
    """Let an agent call the tool, and return the answer that its model gets."""

    async def refund(payment_id: str, amount_minor: int = 100, reason: str = "") -> str:
        """Refund a payment."""
        return work(payment_id)

    desk = DESKS[sdk](guard)
    contracts = {"refund": options}
    return desk.run(desk.tool(refund), one("a"), DONE, contracts=contracts).said[0]


def closed(payment_id):
    raise NotSent("the bank is closed", retryable=False)


def fails_to_ask(ask, guard, work, options):
    """What the model is told, or what the framework makes of the tool's own error, is theirs."""
    try:
        ask(guard, work, options)
    except NotSent:
        return


def test_a_probe_finds_what_an_agent_lost_and_the_model_is_told_the_result(ask, guard, bank):
    asked = []

    def find(**arguments):
        asked.append(arguments)
        return Found(bank.find(arguments["payment_id"])["receipt"])

    options = {"kind": "write", "downstream": "probe", "probe": find}
    told = ask(guard, lambda payment_id: bank.pay(payment_id, 1, fault="lose-answer"), options)

    assert told == "rcpt_1"
    assert asked == [ASKED]
    assert len(bank.ledger()) == 1
    assert guard.in_doubt() == ()


def test_a_doubt_of_an_agent_that_is_gone_is_settled_by_the_probe(sdk, ask, guard, bank, tmp_path):
    def cannot_tell(**arguments):
        raise ConnectionError("the bank does not answer")

    def find(**arguments):
        assert arguments == ASKED
        return Found(bank.find(arguments["payment_id"])["receipt"])

    options = {"kind": "write", "downstream": "probe"}
    ask(
        guard,
        lambda payment_id: bank.pay(payment_id, 1, fault="lose-answer"),
        options | {"probe": cannot_tell},
    )
    assert len(guard.in_doubt()) == 1
    later = Guard(f"sqlite:///{tmp_path}/effects.db", spool=tmp_path / "later")
    SDKS[sdk](later, {"refund": options | {"probe": find}})  # all that another process has to do

    settled = later.reconcile()

    assert (settled.settled, settled.skipped) == (1, 0)
    assert ask(guard, closed, options | {"probe": find}) == "rcpt_1"
    assert len(bank.ledger()) == 1
    later.close()


def test_a_letter_of_an_agent_is_redriven_and_the_agent_is_told_the_result(ask, guard, bank):
    def redrive(payment_id, amount_minor, reason):
        return bank.pay(payment_id, amount_minor, key=current_effect().downstream_key)["receipt"]

    options = {"kind": "write", "redrive": redrive}
    fails_to_ask(ask, guard, closed, options)
    (letter,) = guard.dead_letters.list()

    first, again = (_redriven(guard, letter) for _ in range(2))

    assert (first.what, again.what) == ("done", "replayed")
    assert ask(guard, closed, options) == "rcpt_1"
    assert [entry["amount_minor"] for entry in bank.ledger()] == [100]


def test_a_letter_that_only_its_agent_can_do_says_so_and_stays(ask, guard, bank):
    options = {"kind": "write"}
    fails_to_ask(ask, guard, closed, options)
    (letter,) = guard.dead_letters.list()

    redriven = _redriven(guard, letter)

    assert redriven.what == "skipped"
    assert "Let the agent ask again" in redriven.why
    assert [each.reference for each in guard.dead_letters.list()] == [letter.reference]
    assert ask(guard, lambda payment_id: bank.pay(payment_id, 1)["receipt"], options) == "rcpt_1"
    assert guard.dead_letters.list() == ()


def test_what_the_probe_did_not_find_is_not_done_by_a_redrive_that_cannot(ask, guard, bank):
    options = {
        "kind": "idempotent_write",
        "downstream": "probe",
        "probe": lambda **arguments: NotFound(),
    }
    fails_to_ask(ask, guard, closed, options)
    (letter,) = guard.dead_letters.list()

    assert _redriven(guard, letter).what == "skipped"
    assert bank.ledger() == []


def _redriven(guard, letter):
    """In the colour that the guard knows the tool by."""
    given = {"by": "ada", "reason": "the bank is open"}
    redriven = guard.dead_letters.redrive(letter.key, **given)
    if redriven.why.endswith("aredrive"):
        return asyncio.run(guard.dead_letters.aredrive(letter.key, **given))
    return redriven


def test_what_a_person_settled_is_told_to_the_model_of_openai(guard, bank):
    lost = lambda payment_id: bank.pay(payment_id, 1, fault="lose-answer")
    asked_by_an_agent("openai agents", guard, lost, {"kind": "write"})
    (doubt,) = guard.in_doubt()
    guard.confirm(
        doubt.request.key, result={"receipt": "rcpt_1"}, by="ann", reason="it is in the ledger"
    )

    told = asked_by_an_agent("openai agents", guard, lost, {"kind": "write"})

    assert "rcpt_1" in str(told)
    assert len(bank.ledger()) == 1


def test_a_probe_and_a_redrive_have_one_colour(guard):
    async def redrive(payment_id): ...

    with pytest.raises(ContractViolation, match="both must be def, or both async def"):
        EffectOnce(
            guard,
            contracts={
                "refund": {
                    "downstream": "probe",
                    "probe": lambda payment_id: None,
                    "redrive": redrive,
                }
            },
        )


def test_async_code_of_a_tool_that_sync_code_runs_is_refused_before_anything_is_sent(guard, bank):
    async def find(**arguments): ...

    options = {"kind": "write", "downstream": "probe", "probe": find}
    pays = lambda payment_id: bank.pay(payment_id, 1)["receipt"]
    told = asked_by_an_agent("langchain sync", guard, pays, options)

    assert told["code"] == "CONTRACT_VIOLATION"
    assert bank.ledger() == []
