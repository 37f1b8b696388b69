"""`effectonce examples`: what there is, what it needs, and a copy to run."""

import ast
import re
import sys
from importlib.metadata import (
    PackageNotFoundError,
    distributions,
    packages_distributions,
    requires,
)

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.cli.desk import ROOT

FILES = sorted(path for path in (ROOT / "examples").iterdir() if path.is_file())


def listed(desk):
    return desk.json("examples")["examples"]


def test_every_file_of_the_folder_is_listed_with_a_sentence(anywhere):
    shown = listed(anywhere)

    assert [each["file"] for each in shown] == [path.name for path in FILES]
    assert [each["name"] for each in shown if not re.match(r"[A-Z].{20,}\.$", each["shows"])] == []


def test_a_pipe_gets_a_line_for_each(anywhere):
    lines = anywhere.run("examples").stdout.splitlines()

    assert len(lines) == len(FILES)
    assert {line.count("\t") for line in lines} == {2}


def test_a_terminal_shows_what_each_needs_and_what_to_do_next(anywhere):
    code, screen = anywhere.terminal("examples", width=80)

    assert code == 0
    assert "pip install 'effectonce[dbos]'" in " ".join(screen.split())
    assert "`effectonce examples NAME --save`" in " ".join(screen.split())
    assert max(map(len, screen.splitlines())) <= 80


@pytest.mark.parametrize("name", ["refund_agent", "refund_agent.py"])
def test_an_example_is_printed_as_it_is(anywhere, name):
    text = (ROOT / "examples" / "refund_agent.py").read_text()

    assert anywhere.run("examples", name).stdout == text
    assert anywhere.json("examples", name)["text"] == text


def test_a_name_that_is_none_has_a_guess(anywhere):
    done = anywhere.run("examples", "refund_agnt")

    assert done.returncode == 5
    assert "Did you mean `effectonce examples refund_agent`?" in done.stderr


def test_it_is_saved_where_the_pages_have_it_and_not_twice(anywhere):
    saved = anywhere.folder / "examples" / "undo.py"

    done = anywhere.run("examples", "undo", "--save")
    saved.write_text("mine")
    again = anywhere.run("examples", "undo", "--save")

    assert (done.returncode, done.stderr) == (0, "Written: examples/undo.py.\n")
    assert again.returncode == 6
    assert "examples/undo.py is there already, and was not changed." in again.stderr
    assert saved.read_text() == "mine"


def test_it_is_saved_under_another_name(anywhere):
    done = anywhere.run("examples", "dbos_step", "--save", "shop/refunds.py")

    assert "It needs: pip install 'effectonce[dbos]'" in done.stderr
    assert (anywhere.folder / "shop" / "refunds.py").read_text() == (
        ROOT / "examples" / "dbos_step.py"
    ).read_text()


def test_a_file_where_the_folder_should_be_is_said(anywhere):
    (anywhere.folder / "taken").write_text("")

    done = anywhere.run("examples", "undo", "--save", "taken/undo.py")

    assert done.returncode == 6
    assert "taken is there already, and was not changed." in done.stderr


def test_all_are_saved_into_a_new_folder(anywhere):
    done = anywhere.run("examples", "--save")
    again = anywhere.run("examples", "--save")

    assert f"Written: {len(FILES)} files in examples." in done.stderr
    assert {path.name for path in (anywhere.folder / "examples").iterdir()} == {
        path.name for path in FILES
    }
    assert again.returncode == 6


# ---------------------------------------------------------------- what each needs


def packages_of(path):
    """Packages that a file imports, as they are imported."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"effectonce", "examples"}


def installed_with(requirement, seen):
    """Names of all packages that come with it, and its own."""
    name = canonicalize_name(requirement.name)
    if (name, *requirement.extras) in seen:
        return set()
    seen.add((name, *requirement.extras))
    try:
        asked = [Requirement(text) for text in requires(name) or ()]
    except PackageNotFoundError:
        return {name}
    extras = [{"extra": extra} for extra in ("", *requirement.extras)]
    wanted = [r for r in asked if not r.marker or any(r.marker.evaluate(e) for e in extras)]
    return {name}.union(*(installed_with(each, seen) for each in wanted))


DISTRIBUTIONS = packages_distributions()
INSTALLED = {canonicalize_name(each.name) for each in distributions()}


@pytest.mark.parametrize("path", [p for p in FILES if p.suffix == ".py"], ids=lambda p: p.stem)
def test_what_an_example_imports_is_what_it_says_that_it_needs(anywhere, path):
    (needs,) = [each["needs"] for each in listed(anywhere) if each["file"] == path.name]
    named = re.findall(r"[^\s']+", needs.partition(";")[0]) or ["effectonce"]

    present = set().union(*(installed_with(Requirement(each), set()) for each in named))

    if not present <= INSTALLED:
        return  # a framework of another environment: make test-frameworks installs what it says
    for package in packages_of(path):
        providers = {canonicalize_name(name) for name in DISTRIBUTIONS.get(package, ())}
        assert needs, f"{path.name} imports {package}, and does not say what to install"
        assert providers & present, f"{package} is not in {named}"
