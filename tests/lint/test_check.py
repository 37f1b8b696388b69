"""Files, folders, allowances, and what cannot be read."""

import ast
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effectonce.lint import CODES, check, check_source, files, page
from tests.lint.snippets import FOUND, NOT_FOUND

ROOT = Path(__file__).parent.parent.parent
ENDLESS = "import tenacity\n@tenacity.retry{comment}\ndef get(): ...\n"
TOOL = (
    "import requests\nfrom langchain_core.tools import tool\n@tool\ndef pay(p):\n   "
    " requests.post(u)\n"
)
ENDPOINT = """import requests
from fastapi import APIRouter
router = APIRouter()
@router.post("/refunds")
def refund(payment):
    requests.post(u)
"""


def found(source):
    return [(finding.line, finding.code) for finding in check_source(source)]


# ---------------------------------------------------------------- this repository


@pytest.mark.parametrize(
    "folder", [pytest.param("src", marks=pytest.mark.long), "examples", "bench", "docs"]
)
def test_what_we_write_ourselves_is_clean(folder):
    assert check([ROOT / folder]) == []


def test_the_python_of_our_pages_is_clean():
    from tests.test_docs import PAGES, blocks

    for one in PAGES:
        assert (
            check_source("\n".join(code for _, code in blocks(one, "python")), path=str(one)) == []
        )


# ---------------------------------------------------------------- whatever is in a file


@pytest.mark.long  # programs made of all examples are looked at below
def test_no_file_of_the_standard_library_is_too_much(monkeypatch):
    """Every name of it is looked at, as if each file were about us."""
    from effectonce.lint import _check

    monkeypatch.setattr(_check, "_is_about_us", lambda _: True)
    folder = Path(sysconfig.get_path("stdlib"))
    chosen = [
        folder / name
        for name in (
            "asyncio",
            "concurrent",
            "email",
            "http",
            "importlib",
            "typing.py",
            "ast.py",
            "turtle.py",
        )
    ]

    assert check(chosen) == []
    assert len(list(files(chosen))) > 90


SOURCES = [*FOUND.values(), *NOT_FOUND.values(), *(page(code).good for code in CODES)]
LOADED = (
    ast.Call,
    ast.Name,
    ast.Attribute,
    ast.Dict,
    ast.JoinedStr,
    ast.BinOp,
    ast.Constant,
    ast.Lambda,
    ast.Tuple,
)
EXPRESSIONS = sorted(
    {
        ast.unparse(node)
        for source in SOURCES
        for node in ast.walk(ast.parse(source))
        if isinstance(node, LOADED)
    }
)


class Transplant(ast.NodeTransformer):
    """Puts another expression in the place of the one that is chosen."""

    def __init__(self, place, graft):
        self.place, self.graft = place, graft

    def visit(self, node):
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            self.place -= 1
            if self.place == 0:
                return self.graft
        return node if isinstance(node, ast.JoinedStr) else self.generic_visit(node)


@pytest.mark.parametrize("programs", [50, pytest.param(300, marks=pytest.mark.long)])
def test_no_program_makes_it_fail(programs):
    settings(max_examples=programs, deadline=None)(fails_for_no_program)()


@given(
    st.sampled_from(SOURCES),
    st.lists(st.tuples(st.integers(1, 60), st.sampled_from(EXPRESSIONS)), min_size=1, max_size=4),
)
def fails_for_no_program(source, grafts):
    tree = ast.parse(source)
    for place, graft in grafts:
        tree = Transplant(place, ast.parse(graft, mode="eval").body).visit(tree)
    text = ast.unparse(ast.fix_missing_locations(tree))
    try:
        compile(text, "grown", "exec")
    except SyntaxError:
        return

    assert not [finding for finding in check_source(text) if finding.code == "EO001"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (b"def f(:\n", "invalid syntax"),
        (b"x = '\xff'\n", "utf-8"),
        (b"# coding: no-such-thing\n", "unknown encoding"),
        (b"x = 1\0\n", "null bytes"),
        (b"(" * 5000 + b")" * 5000, "too many nested parentheses"),
        (b"x = " + b"-" * 20000 + b"1\n", "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_a_finding(source, said):
    (finding,) = check_source(source)

    assert finding.code == "EO001"
    assert said in finding.message


def test_a_chain_that_never_ends_is_no_reason_to_fail():
    source = "import tenacity\nx = y" + ".z()" * 3000 + "\n"

    assert {finding.code for finding in check_source(source)} <= {"EO001"}


def test_what_is_made_of_itself_means_nothing():
    assert (
        check_source("import tenacity\nx = y\ny = x\n@x.retry\ndef f(): pay(idempotency_key=y())\n")
        == []
    )


def test_other_encodings_are_read():
    source = (
        "# coding: latin-1\nimport tenacity\nname = 'é'\n@tenacity.retry\ndef f(): ...\n".encode(
            "latin-1"
        )
    )

    assert [finding.code for finding in check_source(source)] == ["EO303"]


def test_one_bad_file_does_not_hide_the_others(tmp_path):
    (tmp_path / "a.py").write_text("def f(:")
    (tmp_path / "b.py").write_text(ENDLESS.format(comment=""))
    (tmp_path / "c.py").symlink_to(tmp_path / "gone.py")

    assert [(Path(f.path).name, f.code) for f in check([tmp_path])] == [
        ("a.py", "EO001"),
        ("b.py", "EO303"),
        ("c.py", "EO001"),
    ]


# ---------------------------------------------------------------- which files


def test_tests_and_what_is_not_yours_are_passed_by(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").touch()
    yours = (
        "shop/a.py shop/test_a.py shop/a_test.py shop/conftest.py shop/a.txt tests/b.py"
        " tests/unit/test_h.py"
    )
    not_yours = ".hidden/c.py env/d.py node_modules/e.py shop/__pycache__/f.py site-packages/g.py"
    for name in f"{yours} {not_yours}".split():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()

    def names(*paths):
        return [
            path.relative_to(tmp_path).as_posix()
            for path in files(tmp_path / path for path in paths)
        ]

    assert names("") == ["shop/a.py"]
    assert names("tests", "shop/test_a.py") == [
        "tests/b.py",
        "tests/unit/test_h.py",
        "shop/test_a.py",
    ]
    assert names("shop", "shop/a.py", "shop") == ["shop/a.py"]
    assert names("env") == ["env/d.py"]
    assert names("tests/unit") == ["tests/unit/test_h.py"]


def test_an_adapter_in_one_file_protects_the_tools_of_all(tmp_path):
    (tmp_path / "tools.py").write_text(TOOL)
    agent = tmp_path / "agent.py"

    agent.write_text("from effectonce.integrations.pydantic_ai import Once\n")
    assert [finding.code for finding in check([tmp_path])] == ["EO201"]

    agent.write_text("from effectonce.integrations.langchain import EffectOnce\n")
    assert check([tmp_path]) == []


def test_what_an_adapter_records_is_looked_at_where_it_is_used(tmp_path):
    (tmp_path / "tools.py").write_text(
        TOOL.replace("    requests.post(u)", "    requests.post(u)\n    requests.post(v)")
    )
    assert [finding.code for finding in check([tmp_path])] == ["EO201"]

    (tmp_path / "agent.py").write_text("from effectonce.integrations.langchain import EffectOnce\n")
    assert [finding.code for finding in check([tmp_path])] == ["EO205"]


def test_a_middleware_in_one_file_protects_the_endpoints_of_all(tmp_path):
    (tmp_path / "refunds.py").write_text(ENDPOINT)
    app = tmp_path / "app.py"

    app.write_text(
        "from effectonce.http.client import protect\nfrom stripe import IdempotencyError\n"
    )
    assert [finding.code for finding in check([tmp_path])] == ["EO208"]

    app.write_text("from effectonce.http.server import IdempotencyMiddleware\n")
    assert check([tmp_path]) == []

    for others in (
        "class IdempotencyMiddleware: ...\n",
        "from shop.http import IdempotentMiddleware\n",
        "import idempotency_header\n",
    ):
        app.write_text(others)
        assert check([tmp_path]) == []


def test_a_file_of_endpoints_needs_no_loop_to_be_looked_at():
    assert found(ENDPOINT) == [(6, "EO208")]
    assert found(ENDPOINT.replace("fastapi", "shop").replace("APIRouter", "Router")) == []


# ---------------------------------------------------------------- allowances


@pytest.mark.parametrize(
    "comment",
    [
        "  # effectonce: allow EO303 because it is a worker",
        "(\n    # effectonce: allow EO303 because it is a worker\n)",
        (
            "(  # effectonce: allow EO304, EO303 because it is a worker\n   "
            " wait=tenacity.wait_fixed(1),\n)"
        ),
    ],
)
def test_a_finding_is_allowed_where_it_stands(comment):
    assert found(ENDLESS.format(comment=comment)) == []


def test_a_comment_alone_is_about_the_line_below():
    source = ENDLESS.format(comment="").replace(
        "@", "# effectonce: allow EO303 because it is a worker\n# and so on\n\n@"
    )

    assert found(source) == []


def test_an_allowance_says_why():
    assert found(ENDLESS.format(comment="  # effectonce: allow EO303")) == [(2, "EO002")]
    assert found(ENDLESS.format(comment="  # effectonce: allow EO303 because")) == [
        (2, "EO303"),
        (2, "EO002"),
    ]
    assert found(ENDLESS.format(comment="  # effectonce: ignore")) == [(2, "EO303"), (2, "EO002")]


def test_an_allowance_allows_something():
    assert found("x = 1  # effectonce: allow EO303 because it is a worker\n") == [(1, "EO003")]
    assert found(
        ENDLESS.format(comment="  # effectonce: allow EO303, EO999 because it is a worker")
    ) == [(2, "EO003")]
    assert found(
        "import tenacity\n\n# effectonce: allow EO303 because it is a worker\nx ="
        " 1\n@tenacity.retry\ndef f(): ...\n"
    ) == [
        (3, "EO003"),
        (5, "EO303"),
    ]


def test_an_allowance_in_a_text_is_none():
    assert found('x = "# effectonce: allow EO303 because it is a worker"\n') == []


def test_an_allowance_of_a_rule_that_is_not_asked_for_is_left_alone():
    source = ENDLESS.format(comment="  # effectonce: allow EO303 because it is a worker")

    assert check_source(source, codes=["EO003", "EO101"]) == []


def test_an_allowance_of_what_another_file_protects_allows_nothing(tmp_path):
    (tmp_path / "tools.py").write_text(
        TOOL.replace("(u)", "(u)  # effectonce: allow EO201 because the agent is elsewhere")
    )
    assert check([tmp_path]) == []

    (tmp_path / "agent.py").write_text("from effectonce.integrations.langchain import EffectOnce\n")
    assert [finding.code for finding in check([tmp_path])] == ["EO003"]
