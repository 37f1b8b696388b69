"""The dashboard in a real browser: Debian's chromium, driven by Playwright."""

import re
import shutil
import signal
from contextlib import contextmanager
from itertools import product

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from effectonce import InDoubt
from effectonce._core.record import State
from tests.attacks.crowds import crowd, fill_sqlite
from tests.processes import started
from tests.server.serving import at_new_store, filled, serving
from tests.server.shop import NASTY

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP ops.test 127.0.0.1"]  # fmt: skip
NAME = "ops.test"  # which this browser takes for 127.0.0.1
ACTING = ("--app", "house:guard", "--allow-actions", "--by", "ada", "--reveal")
PATIENT_MS = 60_000  # on the slowest machine; what is waited for usually takes a tenth of a second


@pytest.fixture(scope="module")
def chromium():
    path = shutil.which("chromium")
    assert path, "chromium is missing. As root: apt-get install chromium fonts-liberation"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=ARGUMENTS, timeout=PATIENT_MS
        )
        yield browser
        browser.close()


def more(shop):
    """Names and errors as long and as nasty as they come."""
    shop.call(NASTY, NASTY, text=NASTY)
    shop.call(
        "support/ticket/2026-11-16/" + "0123456789abcdef" * 8,
        "_refund",
        payment_id="pay_lost_2",
        amount_minor=1,
    )
    shop.call("chat-9", "_refund", payment_id="pay_1", amount_minor=1)
    shop.call("newsletter", "_mail", to="ada")
    for number, amount in enumerate((60, 7, 50)):
        shop.call(f"gift-{number}", "_give", customer=NASTY, amount=amount)
    shop.call("till", "_pay_out", to="acct_1", amount_minor=1, note="ok")
    with shop.guard.step("till", "step"):
        shop.guard.approvals.approve(shop.record(shop.newest()).request.key, by="eve", reason="y")
        shop.guard.call("_pay_out", {"to": "acct_1", "amount_minor": 1, "note": "ok"})
    shop.call("till", "_pay_out", to="acct_2", amount_minor=70_000, note=NASTY * 8)
    with pytest.raises(InDoubt):
        shop.order("ord_1")


@pytest.fixture
def desk(tmp_path):
    return filled(tmp_path, more)


class Reader:
    """A page of a browser that came in by the link, and what its console said."""

    def __init__(self, context, link):
        self.page, self.said, self.where = (
            context.new_page(),
            [],
            link.partition("/?")[0].rstrip("/"),
        )
        self.page.set_default_timeout(PATIENT_MS)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(link)

    def go(self, path):
        self.page.goto(f"{self.where}{path}")
        return self.page


each_way = pytest.mark.parametrize(
    "scripts",
    [True, pytest.param(False, marks=pytest.mark.long)],
    ids=["with scripts", "without scripts"],
)


@contextmanager
def reading(chromium, desk, *arguments, **options):
    """A reader of a server that was started with these arguments."""
    with serving(desk, *arguments) as (process, link), chromium.new_context(**options) as context:
        reader = Reader(context, link)
        reader.server = process
        yield reader


def settle(reader):
    """The oldest doubt, by hand."""
    page = reader.page
    page.get_by_role("link", name="In doubt", exact=True).click()
    page.locator("table a.ref").first.click()
    form = page.locator("form", has_text="You have seen it downstream")
    form.get_by_label("Result").fill('{"receipt": 17}')
    form.get_by_label("Reason").fill("on the statement of 3 May")
    form.get_by_role("button", name="It happened").click()
    expect(page.get_by_role("status")).to_have_text(
        "Written down: it happened.", timeout=PATIENT_MS
    )
    return page.locator("h1 .ref").inner_text()


@each_way
def test_a_doubt_is_settled_end_to_end(chromium, desk, scripts):
    with reading(chromium, desk, *ACTING, java_script_enabled=scripts) as reader:
        reference = settle(reader)
        assert reader.said == []

    found = desk.json("effect", "show", reference, "--reveal")
    assert (found["state"], found["settled_by"], found["reason"]) == (
        "completed",
        "ada",
        "on the statement of 3 May",
    )
    assert (found["sends"], found["result"]) == (1, {"receipt": 17})


@pytest.mark.parametrize("many", [60, pytest.param(500, marks=pytest.mark.long)])
@each_way
def test_a_group_of_many_doubts_is_settled_by_one_decision(chromium, tmp_path, many, scripts):
    def heap(shop):
        for number in range(many):
            shop.call(f"night-{number}", "_refund", payment_id=f"pay_lost_{number}", amount_minor=1)
        assert len(shop.ledger) == many + 1  # each was paid, and its answer was lost

    desk = filled(tmp_path, heap)
    with reading(chromium, desk, *ACTING, java_script_enabled=scripts) as reader:
        page = reader.go("/in-doubt?tool=_refund")
        page.get_by_role("link", name="Settle these").first.click()
        expect(page.get_by_text(f"{many + 1} effects in doubt")).to_be_visible(timeout=PATIENT_MS)
        page.get_by_label("happened: later calls get the result below").check()
        page.get_by_role("textbox", name="Result").fill('{"receipt": 17}')
        page.get_by_role("textbox", name="Reason").fill("all on the statement of 3 May")
        page.get_by_label("Pace").select_option("50")
        page.get_by_role("button", name="Settle").click()
        said = page.get_by_role("status")
        while not scripts and page.get_by_role("button", name="Go on").count():
            page.get_by_role("button", name="Go on").click()
        expect(said).to_contain_text(f"{many + 1} happened. That was all", timeout=PATIENT_MS)
        assert reader.said == []

    effects = desk.json("effect", "list", "--tool", "_refund", "--limit", "1000")["effects"]
    assert {(e["state"], e["settled_by"], e["reason"], e["sends"]) for e in effects} == {
        ("completed", "ada", "all on the statement of 3 May", 1)
    }
    assert len(effects) == many + 1


@pytest.mark.long  # test_approvals.py fills in the same form
@each_way
def test_a_call_is_approved_end_to_end(chromium, desk, scripts):
    with reading(chromium, desk, *ACTING, java_script_enabled=scripts) as reader:
        page = reader.page
        page.get_by_role("link", name="Approvals", exact=True).click()
        page.locator("table a.ref").first.click()
        expect(page.locator("#wish")).to_contain_text("70000", timeout=PATIENT_MS)
        form = page.locator("form", has_text="Nothing is sent by this")
        form.get_by_label("Good for").fill("2h")
        form.get_by_label("Reason").fill("the contract says so")
        form.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("status")).to_contain_text("it may be sent", timeout=PATIENT_MS)
        reference = page.locator("h1 .ref").inner_text()
        assert reader.said == []

    approval = desk.json("effect", "show", reference)["approval"]
    assert (approval["state"], approval["by"], approval["reason"]) == (
        "approved",
        "ada",
        "the contract says so",
    )


@pytest.mark.long  # test_shield.py sends the same headers
def test_a_doubt_is_settled_over_plain_http_under_a_name(chromium, desk):
    """There a browser does not say where a request comes from, other than by its Origin."""
    with (
        serving(
            desk,
            "--access",
            "house:operator",
            "--app",
            "house:guard",
            "--allow-host",
            NAME,
            first="stderr",
        ) as (_, said),
        chromium.new_context(extra_http_headers={"x-user": "eve"}) as context,
    ):
        reader = Reader(context, said.removeprefix("Listening on ").replace("127.0.0.1", NAME))
        reference = settle(reader)

    assert desk.json("effect", "show", reference)["settled_by"] == "eve"


LISTS = (
    "/",
    "/effects",
    "/effects?state=in-doubt",
    "/approvals",
    "/in-doubt",
    "/letters",
    "/allowances",
    "/prevented",
    "/tools",
    "/breakers",
    "/workflows",
)


def paths(reader):
    """Every page that there is, with something on it."""
    page = reader.go("/in-doubt")
    doubts = [link.get_attribute("href") for link in page.locator("table a.ref").all()]
    group = page.locator("a[href*='/groups/']").first.get_attribute("href")
    run = reader.go("/workflows").locator("table a.ref").first.get_attribute("href")
    done = reader.go("/effects?state=completed").locator("table a.ref").first.get_attribute("href")
    letter = reader.go("/letters?tool=_ship").locator("table a.ref").first.get_attribute("href")
    wish = reader.go("/approvals").locator("table a.ref").first.get_attribute("href")
    lists = [
        "/",
        "/effects",
        "/approvals",
        "/in-doubt",
        "/letters",
        "/letters?tool=_ship",
        "/letters/redrive?tool=_ship",
        "/letters?error=TimeoutError&older_than=0s",
        "/effects?tool=_refund&state=in-doubt&newer_than=7d",
        "/in-doubt?tool=no+such+tool",
        group,
        "/allowances",
        "/prevented",
        "/prevented?since=30d",
        "/tools",
        "/breakers",
        "/storm",
        "/fallback",
        "/workflows",
    ]
    return [*lists, wish, *doubts[1:4], run, letter, f"{done}?reveal=on"]


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.long)])
def test_every_page_can_be_read_by_everybody(chromium, desk, every):
    with reading(chromium, desk, *ACTING) as reader:
        widths = (390,) if every > 1 else (1400, 800, 390)
        read(reader, paths(reader)[::every], widths, schemes=("light", "dark"))


def read(reader, paths, widths, schemes):
    for path in paths:
        page = reader.go(path)
        for look in product(schemes, widths):
            scheme, width = look
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": 800})
            found = Axe().run(page).response["violations"]
            assert [(each["id"], each["nodes"][0]["target"]) for each in found] == [], (path, look)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    assert reader.said == []


def crowded(folder):
    desk = filled(folder, more)
    shares = {State.COMPLETED: 80_000, State.IN_DOUBT: 10_000, State.FAILED: 5_000}
    others = {State.CLAIMED: 3_000, State.DISPATCHED: 2_000}
    fill_sqlite(folder / "effects.db", crowd(shares | others))
    return desk


def untouched(folder):
    desk = at_new_store(folder, lambda _: None)
    desk.json("store", "migrate")
    return desk


@pytest.mark.long  # some pages of a store with something in it are read above
@pytest.mark.parametrize("store", [untouched, crowded], ids=["empty", "100,000"])
def test_every_list_can_be_read_however_much_is_in_it(chromium, tmp_path, store):
    desk = store(tmp_path)
    with reading(chromium, desk, *ACTING) as reader:
        read(reader, LISTS, widths=(1400, 390), schemes=("light", "dark"))


def test_faults_would_be_found(chromium):
    page = chromium.new_page()
    page.set_content(
        "<html><body><img src='x'><p style='color:#ccc;background:#fff'>pale</p></body></html>"
    )

    assert {each["id"] for each in Axe().run(page).response["violations"]} >= {
        "image-alt",
        "color-contrast",
        "document-title",
    }


def called_elsewhere(desk, number):
    """In another process: the reference of the new effect."""
    code = (
        "import sys; from effectonce import Guard; from tests.server.shop import Shop;"
        " guard = Guard(sys.argv[1]); shop = Shop(guard);"
        " print(shop.call(f'chat-{sys.argv[2]}', '_refund', payment_id=f'pay_{sys.argv[2]}',"
        " amount_minor=1)); guard.close()"
    )
    with started(code, desk.url, number) as process:
        return process.communicate(timeout=120)[0].strip()


def test_an_effect_that_another_process_makes_appears_by_itself(chromium, desk):
    with reading(chromium, desk) as reader:
        page = reader.go("/effects?tool=_refund")
        expect(page.get_by_role("link", name="Stop")).to_be_visible(timeout=PATIENT_MS)
        before = page.locator("tbody tr").count()
        new = called_elsewhere(desk, 17)

        expect(page.get_by_role("link", name=new)).to_be_visible(timeout=PATIENT_MS)
        assert page.locator("tbody tr").count() == before + 1
        page.get_by_role("link", name="Stop").click()
        expect(page.get_by_role("link", name="Keep up to date")).to_be_visible(timeout=PATIENT_MS)
        assert page.locator("[data-live]").count() == 0
        assert reader.said == []


def test_what_was_typed_and_where_a_reader_is_stays_when_a_page_is_kept_up_to_date(chromium, desk):
    with reading(chromium, desk) as reader:
        reader.page.set_viewport_size({"width": 800, "height": 300})
        page = reader.go("/effects")
        field = page.locator("main form input[name=scope]")
        field.fill("half of a na")
        field.evaluate("field => field.setSelectionRange(4, 6)")
        page.evaluate("window.scrollTo(0, 90)")
        new = called_elsewhere(desk, 18)

        expect(page.get_by_role("link", name=new)).to_be_visible(timeout=PATIENT_MS)
        assert field.input_value() == "half of a na"
        focused = "[document.activeElement.name, document.activeElement.selectionStart]"
        assert page.evaluate(focused) == ["scope", 4]
        assert page.evaluate("window.scrollY") == 90
        assert "tool=" not in page.url
        assert reader.said == []


def test_a_list_whose_session_ended_says_so_and_stops(chromium, desk):
    with reading(chromium, desk) as reader:
        page = reader.go("/effects")
        expect(page.get_by_role("link", name="Stop")).to_be_visible(timeout=PATIENT_MS)
        page.context.clear_cookies()
        called_elsewhere(desk, 19)

        expect(page.get_by_role("heading", name="Who are you?")).to_be_visible(timeout=PATIENT_MS)
        assert page.locator("[data-live]").count() == 0
        assert page.locator("tbody tr").count() == 0


def test_without_scripts_a_list_says_how_to_look_again_and_promises_nothing(chromium, desk):
    with reading(chromium, desk, java_script_enabled=False) as reader:
        page = reader.go("/effects")

        assert page.get_by_role("link", name="Look again").is_visible()
        assert not page.get_by_text("kept up to date").is_visible()


def test_a_server_with_an_open_page_ends_when_it_is_told_to(chromium, desk):
    with reading(chromium, desk) as reader:
        page = reader.go("/effects")
        expect(page.get_by_role("link", name="Stop")).to_be_visible(timeout=PATIENT_MS)
        reader.server.send_signal(signal.SIGINT)

        assert reader.server.wait(timeout=20) == 0


@pytest.mark.long  # test_shield.py sends the same headers
def test_a_page_of_another_site_cannot_decide(chromium, desk):
    with reading(chromium, desk, *ACTING) as reader:
        doubt = re.search(
            r"eff_[0-9a-f]{12}",
            reader.go("/in-doubt").locator("table a.ref").first.get_attribute("href"),
        )[0]
        evil = reader.page.context.new_page()
        evil.set_content(
            f'<form method="post" action="{reader.where}/effects/{doubt}/refute"><input'
            ' name="reason" value="evil"><input name="seen" value="in_doubt-1"><button>Win a'
            " prize</button></form>"
        )
        with evil.expect_response(lambda response: "/refute" in response.url) as answer:
            evil.get_by_role("button").click()

        assert answer.value.status == 403
    assert desk.json("effect", "show", doubt)["state"] == "in_doubt"
