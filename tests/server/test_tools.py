"""The page of tools: a person stops one, and lets it go on, by name and with a reason."""

import pytest

from effectonce import ToolPaused
from effectonce.dashboard import Access
from tests.server.conftest import browser
from tests.server.test_allowances import rows_of


@pytest.fixture
def pay(guard):
    @guard.tool(kind="write", downstream="key", one_request=True)
    def pay(order: str) -> str:
        return f"paid {order}"

    @guard.tool(kind="read")
    def look(order: str) -> str:
        return "there"

    def call(order):
        with guard.step("chat", order):
            return pay(order)

    return call


def test_a_tool_is_paused_and_goes_on_in_the_browser(guard, pay, operator):
    assert pay("o1") == "paid o1"
    (row,) = rows_of(operator.get("/tools"))  # what only reads is not listed
    assert (row["Tool"], row["Landed in 7 days"], row["Sends"]) == (
        "pay write, key",
        "1",
        "yes",
    )

    answer = operator.post("/tools/pause", data={"tool": "pay", "reason": "the <bank> is down"})

    assert (answer.status_code, answer.headers["location"]) == (303, "/tools?")
    with pytest.raises(ToolPaused, match="by ada: the <bank> is down"):
        pay("o2")
    (row,) = rows_of(operator.get("/tools"))
    assert row["Sends"].startswith("paused for ")
    assert row["Sends"].endswith("by ada: the <bank> is down")
    overview = operator.get("/").text
    assert "sends nothing: ada paused it" in overview
    assert "(the &lt;bank&gt; is down)" in overview

    operator.post("/tools/resume", data={"tool": "pay", "reason": "it is up"})
    assert pay("o2") == "paid o2"
    assert "paused it" not in operator.get("/").text


@pytest.mark.parametrize(
    ("form", "status", "why"),
    [
        ({"tool": "pay"}, 422, "Say why"),
        ({"tool": "pya", "reason": "down"}, 404, "no tool &#39;pya&#39; is known here"),
        ({"tool": "look", "reason": "down"}, 404, "look only reads"),
    ],
)
def test_what_would_stop_nothing_is_refused(guard, pay, operator, form, status, why):
    answer = operator.post("/tools/pause", data=form)

    assert answer.status_code == status
    assert why in answer.text
    assert guard.paused_tools() == {}


def test_who_may_only_look_or_sees_one_tenant_decides_nothing(guard, pay, viewer):
    theirs = browser(guard, Access("tom", acts=True, tenant="main"))
    form = {"tool": "pay", "reason": "down"}

    for client in (viewer, theirs):
        assert "<button>Pause" not in client.get("/tools").text
    assert theirs.post("/tools/pause", data=form).status_code == 403
    assert "decided by a login that sees them all" in theirs.get("/tools").text
    assert guard.paused_tools() == {}


def test_without_tools_the_page_says_how_to_get_some(viewer):
    assert "effectonce serve --app MODULE:GUARD" in viewer.get("/tools").text


def test_a_tool_of_other_processes_is_listed_by_what_it_landed(guard, pay, tmp_path):
    pay("o1")
    guard.report()  # adds what was counted
    other = type(guard)(f"sqlite:///{tmp_path / 'effects.db'}")

    (row,) = rows_of(browser(other, Access("ada", acts=True)).get("/tools"))
    assert row["Tool"] == "pay"
    assert (
        browser(other, Access("ada", acts=True))
        .post("/tools/pause", data={"tool": "pay", "reason": "down"})
        .status_code
        == 303
    )
    assert list(guard.paused_tools()) == ["pay"]
    other.close()
