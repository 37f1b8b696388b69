"""`effectonce lint` as a person, a script and a hook see it."""

import gc
import json
import re
import subprocess
import sys

import pytest
import yaml
from click.testing import CliRunner
from tests.cli.desk import ROOT, Desk, environment

from effectonce.cli import main
from effectonce.cli.lint import markdown
from effectonce.lint import CODES, page

ENDLESS = (
    "import tenacity\n\n\n@tenacity.retry(wait=tenacity.wait_fixed(1))\ndef get() -> None: ...\n"
)


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "bank.py").write_text(ENDLESS)
    (tmp_path / "shop" / "clean.py").write_text("x = 1\n")
    return Desk(tmp_path, "")


def test_a_pipe_gets_a_line_for_each(tree):
    said = tree.run("lint")

    assert said.returncode == 3
    assert [line.split(" ")[:3] for line in said.stdout.splitlines()] == [
        ["shop/bank.py:4:2:", "EO303", "tenacity"],
        ["shop/bank.py:4:2:", "EO304", "tenacity"],
    ]
    assert (
        said.stderr
        == "2 findings in 1 of 2 files. More about one: effectonce lint --explain EO303\n"
    )


def test_a_terminal_gets_the_name_of_the_rule_and_whole_words(tree):
    code, screen = tree.terminal("lint", "shop", width=60)

    assert code == 3
    assert (
        "shop/bank.py:4:2: EO303 a retry without an end\n  tenacity never gives up here" in screen
    )
    assert all(len(line) <= 60 for line in screen.splitlines())


def test_a_program_gets_json(tree):
    said = tree.run("lint", "shop", "--json", "--select", "EO303")
    document = json.loads(said.stdout)

    assert (said.returncode, said.stderr) == (3, "")
    assert (document["schema"], document["files"]) == ("effectonce.lint/1", 2)
    (finding,) = document["findings"]
    assert finding.pop("message").startswith("tenacity never gives up")
    assert finding == {
        "path": "shop/bank.py",
        "line": 4,
        "column": 2,
        "code": "EO303",
        "name": "a retry without an end",
    }
    lines = [json.loads(line) for line in tree.run("lint", "-o", "jsonl").stdout.splitlines()]
    assert [(line["schema"], line["code"]) for line in lines] == [
        ("effectonce.lint-finding/1", code) for code in ("EO303", "EO304")
    ]


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        (["--select", "EO304"], ["EO304"]),
        (["--select", "eo303,EO304"], ["EO303", "EO304"]),
        (["--select", "EO303", "--select", "EO1"], ["EO303"]),
        (["--select", "EO3", "--ignore", "EO303"], ["EO304"]),
        (["--ignore", "EO"], []),
    ],
)
def test_rules_are_chosen(tree, arguments, codes):
    said = tree.run("lint", *arguments)

    assert [line.split()[1] for line in said.stdout.splitlines()] == codes
    assert said.returncode == (3 if codes else 0)


def test_nothing_found_is_said(tree):
    said = tree.run("lint", "shop/clean.py")

    assert (said.returncode, said.stdout, said.stderr) == (0, "", "Nothing found in 1 file.\n")


def test_wrong_usage_is_explained(tree):
    (tree.folder / "empty").mkdir()

    for arguments, why in (
        (["nowhere"], "does not exist"),
        (["--select", "EO9"], "there is no rule 'EO9'"),
        (["--explain", "EO9"], "there is no rule 'EO9'"),
        (["empty"], "there is no Python file in empty"),
    ):
        said = tree.run("lint", *arguments)
        assert (said.returncode, why in said.stderr) == (2, True)


def test_a_rule_is_explained(tree):
    said = tree.run("lint", "--explain", "eo101")

    assert said.returncode == 0
    assert said.stdout == page("EO101").markdown + "\n"
    assert (
        json.loads(tree.run("lint", "--explain", "EO101", "--json").stdout)["bad"]
        == page("EO101").bad
    )
    assert [
        rule["code"]
        for rule in json.loads(tree.run("lint", "--explain", "all", "--json").stdout)["rules"]
    ] == list(CODES)


def test_what_a_file_is_called_does_not_command_the_terminal(tree):
    (tree.folder / "shop" / "a\x1b[31m.py").write_text(ENDLESS)

    assert "\x1b" not in tree.run("lint").stdout
    assert "\x1b[31m.py" not in tree.terminal("lint")[1]


def test_nothing_of_the_engine_is_imported(tree):
    code = "import sys; from effectonce.cli import main; main(['lint'], standalone_mode=False)"
    probe = (
        "import atexit, sys; atexit.register(lambda: print('msgspec' in sys.modules,"
        f" 'effectonce._core' in sys.modules)); {code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        cwd=tree.folder,
        env=environment(),
        check=False,
    )

    assert done.stdout.splitlines()[-1] == "False False"


def test_the_page_of_rules_is_what_the_code_has():
    """After a change: `effectonce lint --explain all`, between the two marks."""
    shown = (ROOT / "docs" / "reference" / "lint.md").read_text()

    assert (
        re.search(r"<!-- rules -->\n(.*?)<!-- /rules -->", shown, re.DOTALL)[1] == markdown() + "\n"
    )


def test_the_hook_is_a_command_that_runs(tree):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    said = tree.run(*hook["entry"].split()[1:], *hook.get("args", []))

    assert hook["entry"].split()[0] == "effectonce"
    assert said.returncode == 3


def test_a_program_that_lints_collects_garbage_as_before(tree, tmp_path):
    said = CliRunner().invoke(main, ["lint", str(tmp_path)])

    assert said.exit_code == 3
    assert gc.isenabled()
