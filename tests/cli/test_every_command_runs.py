"""Every command in a message, on a page or in the docs runs, in a store with effects in every
state: what stands for something is replaced by such a thing, and what asks a person is given
`--yes` and a name.
"""

import itertools
import json
import re
import shutil
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from tests.cli.desk import QUIET, ROOT, environment
from tests.cli.test_every_command import parsed, printed_commands, words_of

from effectonce.cli import main as effectonce
from effectonce.cli._exits import FAILED, NEEDS_YOU

# What runs until it is ended is started and ended by other tests; here it says how it is used.
SERVES = {
    ("serve",): "tests/server",
    ("gateway",): "tests/http/test_gateway.py",
    ("mcp", "run"): "tests/mcp_proxy",
    ("mcp", "http"): "tests/mcp_proxy",
}
# What takes longer than all the others together is run once, where its figures are looked at.
SLOW = {
    ("demo",): "tests/cli/test_demo.py",
    ("simulate", "storm"): "tests/cli/test_simulate.py",
    ("simulate", "turns"): "tests/cli/test_simulate.py",
}
APP = "shop.agents:guard"
REFERENCE = re.compile(
    r"(eff_)?(3fa9|71bc|0d3b|8421|7833|0123456789ab)[0-9a-f]*|eff_|KEY|EFFECT|RUN"
)
CALL = {"tool": "mail", "arguments": {"to": "ada"}, "scope": "chat-1", "step": "mail"}


def in_folder(folder, script):
    """Run a script there, as a process of the shop."""
    subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=environment(STORE="sqlite:///effects.db"),
        check=True,
    )


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    """A folder with a shop, its store, and the files that commands name."""
    folder = tmp_path_factory.mktemp("prepared") / "work"
    (folder / "shop").mkdir(parents=True)
    (folder / "shop" / "__init__.py").touch()
    shutil.copy(ROOT / "tests" / "upgrade" / "shop.py", folder / "shop" / "agents.py")
    shutil.copytree(ROOT / "examples", folder / "from_examples")
    shutil.copy(folder / "from_examples" / "gateway.toml", folder / "gateway.toml")
    (folder / "src").mkdir()
    (folder / "src" / "tools.py").write_text("def pay(): ...\n")
    (folder / "bank.toml").write_text("")
    for name in ("call.json", "first.json", "retry.json", "recorded-calls.jsonl"):
        (folder / name).write_text(json.dumps(CALL) + "\n")
    (folder / "receipt.json").write_text('"mailed"')
    (folder / "results.csv").write_text("payment_id,result\npay_0,null\n")
    in_folder(folder, "from shop import agents; agents.fill(agents.guard); agents.guard.close()")
    with pytest.MonkeyPatch.context() as patch:
        counter = Counter(folder, patch)
        for words in (["audit", "anchor", "audit.anchors"], ["dlq", "export", "letters.jsonl"]):
            done = counter.run(words)
            assert done.exit_code == 0, done.output
    return folder


class Counter:
    """A reader who copies commands from a page, in a folder of their own."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.patch = folder, monkeypatch
        self.store = f"sqlite:///{folder}/effects.db"
        monkeypatch.chdir(folder)

    def run(self, words):
        """In this process, with the modules of the shop imported anew."""
        path = list(sys.path)
        environ = {
            **QUIET,
            "EFFECTONCE_STORE": self.store,
            "STORE": self.store,
            "OPEN": "carrier,post office,airline",
        }
        try:
            return CliRunner().invoke(effectonce, words, env=environ, prog_name="effectonce")
        finally:
            sys.path[:] = path
            if (module := sys.modules.get("shop.agents")) is not None:
                module.guard.close()
            for name in [n for n in sys.modules if n == "shop" or n.startswith("shop.")]:
                del sys.modules[name]

    def references(self, *command):
        done = self.run([*command, "--json"])
        assert done.exit_code == 0, done.output
        (listed,) = [v for v in json.loads(done.stdout).values() if isinstance(v, list)]
        return listed


@pytest.fixture(scope="session")
def known(prepared):
    """References of the things that commands are about, by the command."""
    with pytest.MonkeyPatch.context() as patch:
        counter = Counter(prepared, patch)
        effects = counter.references("effect", "list", "--limit", "100")
        runs = counter.references("workflow", "list")
        letters = counter.references("dlq", "list")

        def of(items, **wanted):
            return [
                item["reference"]
                for item in items
                if all(item.get(name) == value for name, value in wanted.items())
            ]

        return {
            "approve": of(counter.references("approve", "list")),
            "audit": of(effects),
            "dlq discard": of(letters, tool="mail"),
            "dlq redrive": of(letters, tool="ship"),
            "dlq": of(letters),
            "effect undo": of(effects, tool="refund", state="completed"),
            "effect": of(effects),
            "indoubt reconcile": of(effects, tool="post"),
            "indoubt retry": of(effects, tool="book", state="in_doubt"),  # it honours keys
            "indoubt": of(effects, tool="mail", state="in_doubt"),
            "workflow": of(runs),
            **{
                f"groups of {name}": [
                    (group["group"], group["tool"]) for group in counter.references(name, "groups")
                ]
                for name in ("dlq", "indoubt")
            },
        }


# ---------------------------------------------------------------- what stands for something

STANDS_FOR = {
    "TOPIC": "in-doubt",
    "WORDS": "doubt",
    "TEXT": "ticket 812",
    "JSON": "null",
    "TOOL": "refund",
    "NAME=VALUE": "amount=70000",
    "PATH": "src",
    "PROVIDER": "stripe.v1",
    "FILE_A": "first.json",
    "FILE_B": "retry.json",
    "FOLDER": "new",
    "aws.<service>.<Operation>": "aws.ec2.RunInstances",
    "{bash|zsh|fish}": "bash",
    "SHELL": "bash",
    "examples/gateway.toml": "gateway.toml",
    "/mnt/elsewhere/audit.anchors": "audit.anchors",
    "refund_order": "deliver",
}
NAMES = {
    "allowance": "refunds",
    "breaker": "stripe",
    "classify": "openai.RateLimitError",
    "docs": "in-doubt",
    "examples": "undo",
    "lint": "EO101",
    "provider": "stripe.v1",
    "tool": "refund",
}
FILES = {
    "audit": "audit.anchors",
    "dlq export": "new.jsonl",
    "dlq import": "letters.jsonl",
    "examples": "new.py",
    "key": "call.json",
}
# What works with the tools of an app, of which pages say once that it is given or set.
NEED_APP = {
    "approve policy check",
    "breaker list",
    "dlq redrive",
    "effect undo",
    "indoubt reconcile",
    "key",
    "tool",
    "workflow resume",
}
# Without an effect they ask for a group or filters instead.
ONE_OR_MANY = ("redrive", "resume", "discard", "confirm", "refute", "retry")
DECIDES = {"--reason": ["ticket 812"], "--by": ["ada"], "--yes": []}


def by_path(table, path):
    """What a table has for a command, or for its group."""
    return table.get(" ".join(path), table.get(path[0]))


def filled(command, known, store):
    """The words of a command with something real for what only stands for it."""
    at, _ = parsed(command)
    words = words_of(command)
    if isinstance(at, click.Group):
        return [*words, "--help"]
    path = path_of(at, words)
    if tuple(path) in SERVES and "--check" not in words:
        return [*path, "--help"]
    words += ["EFFECT"] * (at.name in ONE_OR_MANY and len(words) == 2)
    words += ["NAME"] * (words in (["classify"], ["classify", "--json"]))
    words += [_placeholder(each) for each in missing(at, words[len(path) :])]
    options = {name for each in at.params for name in each.opts}
    if "--app" not in words and (path[0] in NEED_APP or " ".join(path) in NEED_APP):
        words += ["--app", APP]
    for option, value in DECIDES.items():
        words += [option, *value] if option in options and option not in words else []
    if "--result" in options and not {"--result", "--result-file"} & set(words):
        words += ["--result", "null"]
    words += ["--once"] * (at.name == "tail")
    words += ["--arg", "amount=70000"] * (path[0] == "approve" and words[-3:-2] == ["TOOL"])
    if "--" in words:  # a server that is not here
        words[words.index("--") + 1 :] = [sys.executable, "from_examples/mcp_bank.py"]
    references = iter(by_path(known, path) or ())
    if "--group" in words:
        tool = "book" if at.name == "retry" else ""  # it honours keys
        named = next(g for g, of in known[f"groups of {path[0]}"] if tool in ("", of))
        words = [*words[: words.index("--group") + 1], named, *words[words.index("--group") + 2 :]]
    return [
        real(word, before, path, references, store)
        for before, word in zip(["", *words], words, strict=False)
    ]


def _placeholder(argument):
    return (argument.metavar or argument.name.upper()).strip("[].")


def missing(at, words):
    """Arguments of a command that have to be given, and are not."""
    values, _, _ = at.make_parser(click.Context(at)).parse_args(list(words))
    arguments = [each for each in at.params if isinstance(each, click.Argument) and each.required]
    return [each for each in arguments if not isinstance(values.get(each.name), str | tuple)]


def path_of(at, words):
    """The names of its groups, and its own; `mcp` without a command runs one."""
    if at.name in words:
        return words[: words.index(at.name) + 1]
    return [words[0], at.name]


def real(word, before, path, references, store):
    plain = re.sub(r"^\[(.*?)\](\.\.\.)?$|\.\.\.$", r"\1", word)
    match before:
        case "--app":
            return APP
        case "--store":
            return store
        case "--tool":
            return "post" if plain == "HOLE" else plain
        case "--anchor":
            return "audit.anchors"
        case "--workflow":
            return "deliver"
        case "--result-file" | "--group":
            return plain
        case "--since":
            return "7d" if plain == "HOLE" else plain
    if path[0] == "doctor" and word != "doctor" and not word.startswith("-"):
        return store
    if path == ["find"] and plain == "TEXT":
        return "pay_1"
    if plain == "FILE":
        return by_path(FILES, path)
    if plain == "letters.jsonl":
        return by_path(FILES, path)
    if plain == "shop":
        return "new"
    if plain in ("NAME", "HOLE", "HOLEHOLE") and path[0] in NAMES:
        return NAMES[path[0]]
    if plain.startswith("HOLE") or REFERENCE.fullmatch(plain):
        return next(references)
    if path[:2] == ["approve", "policy"]:
        return STANDS_FOR.get(plain, plain) if plain != "refund_order" else plain
    return STANDS_FOR.get(plain, plain)


GROUPS = {
    name
    for name in effectonce.list_commands(click.Context(effectonce))
    if isinstance(effectonce.get_command(click.Context(effectonce), name), click.Group)
}


@pytest.fixture
def new_counter(prepared, tmp_path, monkeypatch):
    """Make a counter with a folder of its own for each command: a command may change the store."""
    folders = (tmp_path / str(number) for number in itertools.count())

    def make():
        folder = shutil.copytree(prepared, next(folders) / "work")
        monkeypatch.setenv("HOME", str(folder))
        return Counter(folder, monkeypatch)

    return make


def test_every_printed_command_runs(new_counter, known):
    failures = []
    for command in sorted({command for _, command in printed_commands()}):
        failures += failures_of(command, new_counter(), known)
    assert failures == []


def failures_of(command, counter, known):
    slow = any(words_of(command)[: len(way)] == list(way) for way in SLOW)
    words = [*words_of(command)[:1], "--help"] if slow else filled(command, known, counter.store)
    if words[:2] == ["tool", "resume"]:
        paused = counter.run([*words[:1], "pause", *words[2:]])
        assert paused.exit_code == 0, paused.output

    done = counter.run(words)

    expected = {0}
    if "--check" in words or words[0] == "lint":
        expected |= {NEEDS_YOU}
    if {"--all", "--from"} & set(words):  # what cannot be done is left, and the exit code says so
        expected |= {FAILED}
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if done.exit_code in expected:
        return []
    return [f"effectonce {' '.join(words)}\n{done.output}"]


def test_what_is_not_run_here_is_run_elsewhere():
    for where in (*SERVES.values(), *SLOW.values()):
        assert (ROOT / where).exists(), where
