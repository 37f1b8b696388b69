"""The playground: policies that go through the objects of the library."""

import html
import re
from xml.etree import ElementTree as ET

import pytest

from effectonce import Guard
from effectonce.simulate.storm import POLICIES, Policy, simulate

WHOLE = "attempts=3&base_s=0.5&cap_s=20&jitter=full&layers=1&budget=on&breaker=on&keys=on&rate=20&seed=7"


def row(page, name):
    """The cells behind a name, without white space around them."""
    cells = re.search(rf'class="name">{name}</td>(.*?)</tr>', page, re.DOTALL)[1]
    return [cell.strip() for cell in re.findall(r">([^<>]+)</td>", cells)]


def test_the_policy_of_the_form_is_simulated_as_the_library_does_it(viewer):
    page = viewer.get(f"/storm?{WHOLE}").text

    assert row(page, "yours") == row(page, "whole")
    whole = next(policy for policy in POLICIES if policy.name == "whole")
    [expected] = simulate(policies=[whole]).policies
    assert row(page, "yours")[2] == f"{expected.goodput:.1%}"
    assert "It comes back" in page


def test_what_many_have_does_not_come_back(viewer):
    page = viewer.get("/storm").text

    [jitter] = simulate(policies=[Policy("jitter")]).policies
    assert not jitter.recovered
    assert row(page, "yours")[2:4] == [f"{jitter.goodput:.1%}", f"{jitter.amplification:.2f}x"]
    assert "It does not come back" in page
    assert "nothing happens twice, and what was not answered is in doubt" in page


def test_the_picture_is_one(viewer):
    answer = viewer.get(f"/storm.svg?{WHOLE}")

    assert answer.headers["content-type"] == "image/svg+xml"
    assert "yours" in "".join(ET.fromstring(answer.text).itertext())


@pytest.mark.parametrize(
    "query",
    ["attempts=0", "attempts=6", "attempts=2.5", "attempts=many", "base_s=nan", "base_s=30&cap_s=1", "cap_s=-1", "rate=1e9", "rate=inf",
     "jitter=%3Cscript%3E", "layers=4", "seed=-1", "seed=1.5"],
)  # fmt: skip
def test_a_policy_that_cannot_be_is_told(viewer, query):
    page = viewer.get(f"/storm?{query}")

    assert page.status_code == 422
    assert 'role="alert"' in page.text
    assert "<script>" not in page.text
    assert viewer.get(f"/storm.svg?{query}").status_code == 422


@pytest.mark.parametrize(
    "query",
    [
        "",
        WHOLE,
        "breaker=on&attempts=5&jitter=decorrelated",
        *(pytest.param(query, marks=pytest.mark.long) for query in ("layers=0", "budget=on")),
    ],
)
def test_the_policy_can_be_copied(viewer, query):
    code = html.unescape(
        re.search(r"<pre[^>]*>(.*?)</pre>", viewer.get(f"/storm?{query}").text, re.DOTALL)[1]
    )
    names = {"guard": Guard("memory://")}

    exec(code, names)

    attempts = 1 if "layers=0" in query else 5 if "attempts=5" in query else 3
    assert names["refund"].contract.retry.attempts == attempts
