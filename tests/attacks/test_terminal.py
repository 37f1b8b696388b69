"""Whoever can put text into a store, a file name or a request commands no terminal, and forges
no row, of who reads it.
"""

import io
import json
import logging
import os
import re
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest

from effectonce._core.effect_ref import EffectRef
from effectonce._log import LOG
from effectonce._text import harmless, harmless_json, on_one_line
from effectonce.cli import main
from effectonce.observe import Event, Logs, StructLog
from effectonce.observe.prometheus import Prometheus
from tests.attacks.hostile import HALF, HOSTILE, OBEYED, STORABLE, filled
from tests.cli.desk import Desk

SOURCE = Path(__file__).parent.parent.parent / "src" / "effectonce"
SHAPES = ("auto", "table", "json", "jsonl")
LISTS = (
    ("effect", "list"), ("effect", "export", "--reveal"), ("indoubt", "list"), ("dlq", "list"), ("dlq", "groups"), ("dlq", "export"),
    ("workflow", "list"), ("tail", "--once"), ("audit", "list"), ("audit", "scan"), ("status",), ("metrics",), ("doctor",),
    ("store", "stats"), ("audit", "verify"),
)  # fmt: skip
# the others wrap
ROWS = frozenset(LISTS) - {("status",), ("doctor",), ("audit", "scan"), ("audit", "verify")}
STORIES = (
    ("effect", "show", "lost"), ("effect", "show", "lost", "--reveal"), ("effect", "show", "done", "--reveal"),
    ("dlq", "show", "lost", "--reveal"),
    ("workflow", "show", "flow"), ("workflow", "show", "flow", "--reveal"),
)  # fmt: skip
APP = (
    ("tool", "list"), ("tool", "show", "tool {said}"), ("breaker", "list"), ("breaker", "show", "bank {said}"),
    ("key", "check", "calls.json"),
    ("key", "diff", "calls.json", "others.json"), ("dlq", "redrive", "--all", "--dry-run"), ("indoubt", "reconcile", "--dry-run"),
)  # fmt: skip


class Read:
    """A store, and the command line that looks at it."""

    def __init__(self, folder, said):
        self.url = f"sqlite:///{folder / 'effects.db'}"
        guard = filled(self.url, said)
        named = {"lost": "tool", "done": "done", "flow": "flow"}
        self.refs = {
            name: next(r for r in _records(guard) if r.request.terms.tool.startswith(begins))
            for name, begins in named.items()
        }
        self.refs = {
            name: EffectRef("", record.request.key).reference for name, record in self.refs.items()
        }
        guard.close()

    def run(self, command, shape):
        arguments = [self.refs.get(word, word) for word in command]
        environ = {
            "EFFECTONCE_STORE": self.url,
            "EFFECTONCE_OUTPUT": shape,
            "NO_COLOR": "1",
            "COLUMNS": "100",
        }
        done = CliRunner().invoke(main, arguments, env=environ)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.stdout, done.stderr


def _records(guard):
    from effectonce._core.ops import Search

    return guard.store.apply(Search(limit=100))


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """The same store twice: with an ordinary word for everything, and with a hostile one."""
    return {said: Read(tmp_path_factory.mktemp("store"), said) for said in ("plain", HOSTILE)}


def obeyed_in(text):
    return sorted(OBEYED.intersection(text))


def skeleton(text):
    """How many rows there are, and how many columns each has."""
    return [line.count("\t") for line in text.split("\n")]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("command", [*LISTS, *STORIES], ids=" ".join)
def test_what_is_stored_commands_no_terminal_and_forges_no_row(stores, command, shape):
    out, err = stores[HOSTILE].run(command, shape)
    usual, _ = stores["plain"].run(command, shape)

    assert usual
    assert obeyed_in(out + err) == []
    assert not any(line.startswith("FORGED") for line in (out + err).split("\n"))
    if shape in ("json", "jsonl") or (shape == "auto" and command in ROWS):
        assert skeleton(out) == skeleton(usual)
    elif command in ROWS:
        assert out.count("\n") == usual.count("\n")


@pytest.mark.parametrize(
    "command",
    [("effect", "show", "lost", "--reveal"), ("dlq", "show", "lost", "--reveal")],
    ids=" ".join,
)
def test_json_says_exactly_what_is_stored(stores, command):
    out, _ = stores[HOSTILE].run(command, "json")

    assert json.loads(out)["arguments"] == {"what": HOSTILE}
    assert json.loads(out)["tool"] == f"tool {HOSTILE}"


def test_an_exported_letter_is_imported_as_it_was(stores, tmp_path):
    out, _ = stores[HOSTILE].run(("dlq", "export"), "auto")
    (tmp_path / "letters.jsonl").write_text(out, encoding="utf-8")

    done = CliRunner().invoke(
        main,
        [
            "dlq",
            "import",
            str(tmp_path / "letters.jsonl"),
            "--store",
            f"sqlite:///{tmp_path}/new.db",
        ],
    )

    assert done.exit_code == 0, done.output
    letter = json.loads(out.splitlines()[0])["letter"]
    assert letter["tool"] == f"tool {HOSTILE}"


@pytest.mark.cover(1)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("command", APP, ids=" ".join)
def test_names_in_an_app_command_no_terminal(tmp_path, command, shape):
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    (tmp_path / "evil_app.py").write_text(
        "from effectonce import breaker\nfrom tests.attacks.hostile import HOSTILE, filled\nguard"
        f" = filled({desk.url!r}, HOSTILE)\n@guard.tool(kind='write', name='mail ' + HOSTILE,"
        " breaker=breaker('bank ' + HOSTILE, shared=guard.store))\ndef mail(to: str, **more: str)"
        " -> None: ...\n"
    )
    for file, value in (("calls.json", "2026-11-16T20:00:00Z"), ("others.json", HOSTILE)):
        call = {"tool": f"mail {HOSTILE}", "arguments": {"to": value}, "scope": "s", "step": "t"}
        (tmp_path / file).write_text(json.dumps(call))
    arguments = [word.format(said=HOSTILE) for word in command]

    done = desk.run(
        *arguments, "--app", "evil_app:guard", EFFECTONCE_STORE="", EFFECTONCE_OUTPUT=shape
    )

    assert "Traceback" not in done.stderr
    assert done.returncode != 2, done.stderr
    assert done.stdout
    assert obeyed_in(done.stdout + done.stderr) == []
    assert not any(line.startswith("FORGED") for line in (done.stdout + done.stderr).split("\n"))


def test_a_terminal_gets_nothing_to_obey_from_tail(tmp_path):
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    filled(desk.url, HOSTILE).close()

    code, screen = desk.terminal("tail", "--once")

    assert code == 0
    assert obeyed_in(screen) == []
    assert len(screen.splitlines()) == 4  # an effect each


@pytest.mark.parametrize(
    "command",
    [
        ("effect", "show", HOSTILE),
        ("classify", HOSTILE),
        ("effect", "list", "--state", HOSTILE),
        ("tool", "show", HOSTILE, "--app", HOSTILE),
    ],
    ids=["effect", "classify", "state", "app"],
)
def test_an_error_message_commands_no_terminal(stores, command):
    done = CliRunner().invoke(
        main, command, env={"EFFECTONCE_STORE": stores[HOSTILE].url, "NO_COLOR": "1"}
    )

    assert done.output
    assert obeyed_in(done.output) == []


@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_name_commands_no_terminal_through_lint(tmp_path, shape):
    name = HOSTILE.replace("/", "") + ".py"
    (tmp_path / os.fsdecode(name.encode()[:200] + b"\xff.py")).write_text(
        "# effectonce: allow EO101\n"
    )

    done = CliRunner().invoke(
        main, ["lint", str(tmp_path)], env={"EFFECTONCE_OUTPUT": shape, "NO_COLOR": "1"}
    )

    assert done.exit_code == 3, done.output
    assert obeyed_in(done.output) == []
    assert not re.search(r"[\ud800-\udfff]", done.output)
    assert not any(line.startswith("FORGED") for line in done.output.split("\n"))


# ---------------------------------------------------------------- logs and metrics


def happened():
    said = HOSTILE + HALF
    effect = EffectRef(said, "k" * 64, said, said, said)
    return Event(
        name="in_doubt",
        at=1.0,
        tool=said,
        effect=effect,
        error=said,
        reason=said,
        by=said,
        dependency=said,
    )


def test_a_log_line_is_one_line_and_commands_nothing():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        logging.Formatter("%(levelname)s %(message)s %(tool)s %(reason)s %(scope)s %(by)s")
    )
    logger = logging.getLogger("attacked")
    logger.propagate = False
    logger.addHandler(handler)

    Logs(logger)(happened())

    assert "evil" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1
    assert "\t" not in stream.getvalue()
    assert obeyed_in(stream.getvalue()) == []


def test_structlog_gets_nothing_to_obey():
    stream = io.StringIO()
    as_it_is = structlog.processors.KeyValueRenderer(repr_native_str=False)
    filtering = structlog.make_filtering_bound_logger(logging.DEBUG)

    StructLog(
        structlog.wrap_logger(
            structlog.PrintLogger(stream), processors=[as_it_is], wrapper_class=filtering
        )
    )(happened())

    assert "evil" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1
    assert obeyed_in(stream.getvalue()) == []


def test_prometheus_text_has_no_forged_line_and_each_series_once():
    registry = CollectorRegistry()
    observer = Prometheus(registry)
    for said in ("a\x1b", "a\x9b", "a\N{REPLACEMENT CHARACTER}", HOSTILE):
        observer(Event(name="in_doubt", at=1.0, tool=said))

    text = generate_latest(registry).decode()

    series = [
        line for line in text.splitlines() if line.startswith("effectonce_in_doubt_entries_total{")
    ]
    assert obeyed_in(text) == []
    assert sorted(line.rpartition(" ")[2] for line in series) == ["1.0", "3.0"]


# ---------------------------------------------------------------- the functions themselves


@pytest.mark.parametrize("what", [*STORABLE, "half"])
def test_each_exit_replaces_or_escapes(what):
    said = {**STORABLE, "half": HALF}[what]

    assert obeyed_in(harmless(said)) == []
    assert obeyed_in(on_one_line(said)) == []
    assert not {"\n", "\t"} & set(on_one_line(said))
    document = json.dumps({said: [said]}, ensure_ascii=False, indent=1)
    assert obeyed_in(harmless_json(document)) == []
    assert json.loads(harmless_json(document)) == {said: [said]}


def test_text_of_people_stays_as_it_is():
    said = "Grüße, 銀行 ₹ עברית 🙂"

    assert harmless(f"{said}\n\t{said}") == f"{said}\n\t{said}"
    assert on_one_line(f"{said}\n\t{said}") == f"{said}  {said}"
    assert harmless_json(json.dumps(said, ensure_ascii=False)) == f'"{said}"'


def test_commands_print_through_the_console_alone():
    """An exit of its own would have to be looked at for each kind of character."""
    exits = re.compile(
        r"click\.(echo|secho|echo_via_pager)\(|(?<![\w.])print\(|sys\.stdout\.write\("
    )
    # the exit itself; scripts that write a page of the docs
    own = {"_console.py", "_reference.py", "_provider_page.py"}

    found = [
        f"{path.name}:{number}"
        for path in sorted((SOURCE / "cli").glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if path.name not in own and exits.search(line)
    ]

    assert found == []


def test_what_the_library_itself_logs_is_one_line(caplog):
    LOG.warning("%s failed: %s, %s times", HOSTILE, ValueError(HOSTILE), 3)

    assert not set(caplog.messages[0]) & {*OBEYED, "\n", "\t"}
    assert caplog.messages[0].endswith(", 3 times")


@pytest.mark.parametrize(
    "said", [{"exc_info": ValueError(f"first\nCRITICAL forged {HOSTILE}")}, {"stack_info": True}]
)
def test_an_error_in_the_log_begins_no_line_that_looks_like_another_entry(said):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    LOG.addHandler(handler)

    try:
        LOG.error("a call was not answered", **said)
    finally:
        LOG.removeHandler(handler)

    first, *more = stream.getvalue().splitlines()
    assert first == "ERROR a call was not answered"
    assert [line for line in more if line.startswith("CRITICAL")] == []
    assert obeyed_in(stream.getvalue()) == []
    assert more


def test_there_is_one_log():
    own = [path.name for path in SOURCE.rglob("*.py") if "getLogger(" in path.read_text()]

    assert sorted(own) == ["_log.py", "logs.py"], "what others wrote is cleaned there"
