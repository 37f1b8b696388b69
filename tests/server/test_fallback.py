"""The playground of model fallback: a chain goes through the objects of the library, and its code
runs.
"""

import html
import re

import pytest

from effectonce import Guard, Retry
from effectonce.simulate.fallback import Chain, Model, beside, simulate
from tests.server.test_storm import row

LARGE, SMALL = Model("large", 15, 2, 0.01), Model("small", 3, 1, 0.02)
WHOLE = Chain("yours", (LARGE, SMALL), Retry(attempts=3), breaker=True)
MODELS = "name0=large&price0=15&latency0=2&fails0=1&name1=small&price1=3&latency1=1&fails1=2"


def test_the_first_look_has_two_models_and_a_breaker(viewer):
    page = viewer.get("/fallback").text

    [expected] = simulate(chains=[WHOLE]).chains
    assert expected.answered > 0.99
    assert row(page, "yours")[0] == f"{expected.answered:.1%}"
    assert row(page, "yours")[3] == f"{expected.cost:,.2f}"


def test_without_another_model_the_outage_is_lost():
    yours, once, alone, unbroken = simulate(chains=[WHOLE, *beside(WHOLE)]).chains

    assert yours.answered_in_outage == 1
    assert once.answered_in_outage == alone.answered_in_outage == 0
    assert set(yours.by_model) == {"large", "small"}
    assert unbroken.p99_s > 2 * yours.p99_s  # each question waits for a model that is down
    assert unbroken.requests > yours.requests


def test_what_answers_is_what_is_paid():
    [result] = simulate(chains=[WHOLE], rate=60, outage_s=0).chains

    questions = (
        result.cost
        * 1000
        / sum(share * {"large": 15, "small": 3}[name] for name, share in result.by_model.items())
    )
    assert 3300 < questions < 3900  # sixty minutes with sixty each
    assert result.by_model["small"] < 0.001


def test_the_address_is_the_state(viewer):
    page = viewer.get(f"/fallback?{MODELS}&name1=tiny&attempts=2&budget=on&outage_min=5").text

    assert 'value="tiny"' in page
    assert re.search(r'name="budget" value="on" checked', page)
    assert not re.search(r'name="breaker" value="on" checked', page)


@pytest.mark.parametrize(
    "query",
    [
        "name0=",
        f"{MODELS}&name1=large",
        f"{MODELS}&price0=-1",
        f"{MODELS}&latency0=0",
        f"{MODELS}&fails1=101",
        f"{MODELS}&fails1=nan",
        f"{MODELS}&attempts=6",
        f"{MODELS}&outage_min=41",
        f"{MODELS}&rate=1e9",
        f"{MODELS}&jitter=%3Cscript%3E",
        f"{MODELS}&name0={'x' * 61}",
        f"{MODELS}&name0=a%00b",
        f"{MODELS}&name2=third",
    ],
)
def test_a_chain_that_cannot_be_is_refused_with_a_reason(viewer, query):
    page = viewer.get(f"/fallback?{query}")

    assert page.status_code == 422
    assert 'role="alert"' in page.text
    assert "<script>alert" not in page.text


class Client:
    """What the page calls `client`."""

    def __init__(self):
        self.asked, self.messages = [], self

    def create(self, *, model: str, max_tokens: int, messages: list) -> dict:
        self.asked.append(model)
        if len(self.asked) == 1:
            raise ConnectionRefusedError("down")
        return {"text": f"Paris, says {model}"}


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("", ["large", "large"]),
        (f"{MODELS}&attempts=1&budget=on", ["large", "small"]),
        (f'{MODELS}&attempts=1&breaker=on&name0=it"s%20<b>', ['it"s <b>', "small"]),
        ("name0=one&price0=1&latency0=1&fails0=0&base_s=0", ["one", "one"]),
    ],
)
def test_the_chain_can_be_copied_and_runs(viewer, query, asked):
    page = viewer.get(f"/fallback?{query}").text
    code = html.unescape(re.search(r"<pre[^>]*>(.*?)</pre>", page, re.DOTALL)[1])
    client = Client()
    names = {"guard": Guard("memory://"), "client": client}

    exec(code.replace("base_s=0.5", "base_s=0"), names)

    assert client.asked == asked
    assert names["message"] == {"text": f"Paris, says {asked[-1]}"}
    assert "<b>" not in page
