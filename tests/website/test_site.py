"""The site that `make docs` built, in a real browser: links, search, contrast, a phone, no trackers.

It is built in an environment of its own, so `make docs` runs this file and `make test` does not.
"""

import functools
import http.server
import shutil
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright
from tests.server.test_browser import ARGUMENTS, PATIENT_MS
from website.api import public_names

from effectonce.cli._pages import docs_pages

SITE = Path(__file__).parent.parent.parent / "build" / "site" / "html"
PAGES = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address():
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


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


@pytest.fixture
def reader(chromium):
    """A page, with what it asked for and what its console said."""
    page = chromium.new_page()
    page.set_default_timeout(PATIENT_MS)
    page.asked, page.said = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    yield page
    page.close()


def test_every_page_of_the_docs_and_every_public_module_has_a_page():
    wanted = {f"{page.topic}.html" for page in docs_pages()}
    wanted |= {f"python/{module}.html" for module in public_names()}

    assert wanted - set(PAGES) == set()


def test_every_link_within_the_site_leads_to_a_place_and_nothing_comes_from_elsewhere(
    reader, address
):
    places, links = {}, set()
    for name in PAGES:
        reader.goto(address + name)
        places[name] = set(reader.eval_on_selector_all("[id]", "all => all.map(e => e.id)"))
        hrefs = reader.eval_on_selector_all(
            "a[href]", "all => all.map(e => e.getAttribute('href'))"
        )
        links |= {(name, urljoin(address + name, href)) for href in hrefs}

    inside = [(name, link) for name, link in links if link.startswith(address)]
    dead = []
    for name, link in inside:
        path, anchor = urldefrag(link.removeprefix(address))
        path = path or "index.html"
        known = path in places and (not anchor or unquote(anchor) in places[path])
        if not known and not (path not in places and (SITE / path).is_file()):
            dead.append((name, link))
    assert len(inside) > 5000
    assert dead == []
    assert {asked for asked in reader.asked if not asked.startswith((address, "data:"))} == set()
    assert reader.said == []


# A page of each sort: what is dark does not differ within a sort.
SORTS = ["index", "howto/support", "explanation/pictures", "python/effectonce.workflows", "search"]


@pytest.mark.parametrize(
    ("scheme", "width", "names"),
    [("light", 390, PAGES), ("dark", 1280, [f"{sort}.html" for sort in SORTS])],
    ids=["every page, light, on a phone", "each sort, dark, on a desk"],
)
def test_a_page_can_be_read_by_all(chromium, address, scheme, width, names):
    found = {}
    with chromium.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 800}
    ) as context:
        page = context.new_page()
        page.set_default_timeout(PATIENT_MS)
        for name in names:
            page.goto(address + name)
            wide = page.evaluate("document.documentElement.scrollWidth")
            if wide > width:
                found[name] = [("wide", wide)]
            for each in Axe().run(page).response["violations"]:
                found.setdefault(name, []).append((each["id"], each["nodes"][0]["target"]))
    assert found == {}, found


def test_a_word_is_found_and_leads_to_its_page(reader, address):
    reader.goto(address + "howto/undo.html")
    field = reader.get_by_role("textbox", name="Search").first
    field.fill("tombstone")
    field.press("Enter")

    expect(reader.locator("#search-results .search-summary")).to_contain_text(
        "found", timeout=PATIENT_MS
    )
    hits = reader.locator("#search-results li a")
    expect(hits.filter(has_text="States").first).to_be_visible(timeout=PATIENT_MS)
    hits.filter(has_text="States").first.click()
    expect(reader.get_by_role("heading", level=1)).to_contain_text("States")
    assert {asked for asked in reader.asked if not asked.startswith((address, "data:"))} == set()


def test_the_sidebar_has_the_order_of_the_index(reader, address):
    reader.goto(address + "index.html")
    hrefs = reader.eval_on_selector_all(
        ".sidebar-tree a.reference.internal", "all => all.map(e => e.getAttribute('href'))"
    )

    for part in ("tutorial", "howto", "reference"):
        shown = [href.removesuffix(".html") for href in hrefs if href.startswith(f"{part}/")]
        assert shown == [p.topic for p in docs_pages() if p.topic.startswith(f"{part}/")]


def test_the_pictures_are_on_their_page(reader, address):
    reader.goto(address + "explanation/pictures.html")

    pictures = reader.locator(".diagram").get_by_role("img").all()
    assert len(pictures) == 2
    for picture in pictures:
        box = picture.bounding_box()
        assert min(box["width"], box["height"]) > 300
