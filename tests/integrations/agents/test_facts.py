"""What has to hold in every agent SDK: `tests/frameworks/facts.py`."""

import pytest

from tests.frameworks.facts import FACTS
from tests.integrations.agents.desks import DESKS

# A coroutine is no tool of sync code, and no sync function is one of an async runner. OpenAI's SDK
# keeps one output for each id of a call, and shows a result that is no text as Python writes it.
WITHOUT = {
    "openai agents": {
        "an_id_that_comes_again_is_no_sign",
        "what_a_person_settled_is_told_to_the_model",
    },
    "langchain sync": {"a_tool_that_is_guarded_already_keeps_its_contract"},
    "anthropic": {"a_guarded_tool_of_the_other_colour_keeps_its_contract_and_tells_its_doubt"},
    "anthropic sync": {"a_tool_that_is_guarded_already_keeps_its_contract"},
}


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        pytest.param(name, fact, id=f"{name}-{fact.__name__}")
        for name in DESKS
        for fact in FACTS
        if fact.__name__ not in WITHOUT.get(name, ())
    ],
)
def test_in_every_sdk(name, fact, guard, bank):
    fact(DESKS[name](guard), guard, bank)
