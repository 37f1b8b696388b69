"""`effectonce docs`: every page offline, for people, pipes and programs."""

import os
import re
import subprocess
import sys

import pytest
from rich.cells import cell_len
from tests.cli.desk import ROOT, environment

from effectonce.cli._pages import LINK, docs_pages, search, topic_of_link

PAGES = docs_pages()
FILES = sorted(path for path in (ROOT / "docs").rglob("*.md"))


def on_one_line(text):
    return " ".join(text.split())


def test_the_index_leads_to_every_page():
    assert {page.topic for page in PAGES} == {
        str(path.relative_to(ROOT / "docs").with_suffix("")) for path in FILES
    }


def test_without_a_topic_all_pages_are_listed_in_the_order_of_the_index(anywhere):
    shown = anywhere.run("docs").stdout.splitlines()

    assert [line.split("\t")[0] for line in shown] == [page.topic for page in PAGES]
    assert shown[1] == "tutorial/first-tool\tA first tool"


def test_a_narrow_terminal_shows_every_title_whole(anywhere):
    code, screen = anywhere.terminal("docs", width=60)

    assert code == 0
    assert max(cell_len(line) for line in screen.splitlines()) <= 60
    assert [page.title for page in PAGES if page.title not in on_one_line(screen)] == []
    assert "`effectonce docs --search WORDS`" in on_one_line(screen)


def test_a_pipe_gets_the_page_as_it_is_written(anywhere):
    page = (ROOT / "docs" / "howto" / "in-doubt.md").read_text()

    assert anywhere.run("docs", "howto/in-doubt").stdout == page
    assert anywhere.run("docs", "in-doubt").stdout == page
    assert anywhere.run("docs", "docs/../howto/in-doubt.md").returncode == 5


@pytest.mark.parametrize("topic", ["reference/identity", "howto/one-line-each", "howto/mcp"])
def test_a_narrow_terminal_shows_every_word_of_a_page(anywhere, topic):
    code, screen = anywhere.terminal("docs", topic, width=60)

    (page,) = [page for page in PAGES if page.topic == topic]
    words = re.findall(r"\w{4,}", LINK.sub(r"\1", page.text))
    seen = "".join(screen.split())
    assert code == 0
    assert max(cell_len(line) for line in screen.splitlines()) <= 60
    assert "**" not in screen
    assert [word for word in words if word not in seen and word not in ("text", "console")] == []


def test_a_link_names_the_topic_that_can_be_asked_for(anywhere):
    _, screen = anywhere.terminal("docs", "reference/states", width=100)

    assert "run the effect again (explanation/protocol)" in on_one_line(screen)
    assert "(#" not in screen
    assert anywhere.run("docs", "explanation/protocol").returncode == 0


def test_a_link_leads_to_a_topic_a_file_or_an_address():
    assert topic_of_link("howto/mcp", "../reference/mcp.md#limits") == "reference/mcp"
    assert topic_of_link("howto/mcp", "../../examples/mcp_bank.py") == "examples/mcp_bank.py"
    assert topic_of_link("howto/mcp", "https://example.com/x.md") == "https://example.com/x.md"
    assert topic_of_link("howto/mcp", "#limits") == ""


def test_a_name_that_two_pages_have_is_asked_about(anywhere):
    done = anywhere.run("docs", "lint")

    assert done.returncode == 5
    assert "Give `effectonce docs howto/lint` or `effectonce docs reference/lint`." in done.stderr


def test_a_page_that_is_not_there_has_a_guess(anywhere):
    done = anywhere.run("docs", "in-dubt")

    assert done.returncode == 5
    assert "Did you mean `effectonce docs howto/in-doubt`?" in done.stderr


def test_a_search_finds_sections_with_all_words_the_best_first(anywhere):
    found = anywhere.json("docs", "--search", "delete hand")

    assert found["schema"] == "effectonce.matches/1"
    assert found["matches"][0]["topic"] == "explanation/protocol"
    assert found["matches"][0]["section"] == "A record that is deleted by hand"


def test_a_word_is_found_at_the_beginning_of_words_only():
    assert all(
        re.search(r"\blease", match.line, re.IGNORECASE) for match in search(["lease"], PAGES)
    )


def test_a_search_within_a_page_stays_on_it(anywhere):
    shown = anywhere.run("docs", "in-doubt", "--search", "probe").stdout.splitlines()

    assert {line.split("\t")[0] for line in shown} == {"howto/in-doubt"}


def test_a_search_fits_a_narrow_terminal(anywhere):
    code, screen = anywhere.terminal("docs", "--search", "lease", width=60)

    assert code == 0
    assert "explanation/protocol: Clocks" in screen
    assert max(cell_len(line) for line in screen.splitlines()) <= 60
    assert "more sections have them: give more words." in on_one_line(screen)


def test_a_search_that_finds_nothing_says_so(anywhere):
    done = anywhere.run("docs", "--search", "xyzzy")

    assert (done.returncode, done.stdout) == (0, "")
    assert "No section has all of: xyzzy" in done.stderr


def test_programs_get_a_page_with_its_topic(anywhere):
    page = anywhere.json("docs", "states")

    assert (page["schema"], page["topic"]) == ("effectonce.page/1", "reference/states")
    assert page["text"] == (ROOT / "docs" / "reference" / "states.md").read_text()


def test_an_installed_wheel_shows_its_own_pages(tmp_path):
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run(
        [*build, "--directory", str(tmp_path)], cwd=ROOT, check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    installed = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", str(installed), str(wheel)], check=True)

    done = subprocess.run(
        [sys.executable, "-m", "effectonce.cli", "docs", "states"],
        cwd=tmp_path,
        env=environment() | {"PYTHONPATH": os.fspath(installed)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == (ROOT / "docs" / "reference" / "states.md").read_text()
    shipped = sorted(
        path.relative_to(installed / "effectonce") for path in installed.rglob("docs/**/*.md")
    )
    assert shipped == sorted(path.relative_to(ROOT) for path in FILES)
