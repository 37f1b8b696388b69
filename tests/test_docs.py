"""Every Python block in the README and the docs runs, and every transcript is replayed."""

import contextlib
import inspect
import os
import pkgutil
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import httpx
import pytest
from msgspec.structs import fields

from effectonce import Breaker, Bucket, Certainty, Guard, Verdict
from effectonce._core.breaker.machine import MOVES, Phase, Sign, sign_of
from effectonce._core.guarantees import GUARANTEES, Capability, Kind
from effectonce.testing.bank import Bank
from tests.http.server import Shop
from tests.newcomer.stand_ins import HonestBank, SlowBank, UnluckyBank
from tests.providers.post_office import post_office
from tests.servers._process import free_port
from tests.servers.redis import Server

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "model" / "README.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# installing is what the fresh clone does; the rest of make is what runs this
NOT_REPLAYED = ("pip install", "make ")


def blocks(page, language):
    return [
        (page.read_text()[: m.start()].count("\n") + 2, m[2])
        for m in BLOCK.finditer(page.read_text())
        if m[1] == language
    ]


def pages_with(language, *, long):
    """Return the pages that have blocks in a language; those named in *long* are marked so."""
    return [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=[pytest.mark.long] if page.stem in long else [],
        )
        for page in PAGES
        if blocks(page, language)
    ]


@contextlib.contextmanager
def what_only_some_pages_use(text, folder):
    """An unlucky bank and a Redis, if a page names them: each is a process of its own."""
    with contextlib.ExitStack() as stack:
        names = {}
        if "unlucky_bank" in text:
            process = stack.enter_context(Bank(folder / "unlucky", honours_keys=True))
            names["unlucky_bank"] = UnluckyBank(process)
        if "redis_url" in text:
            server = Server(folder / "redis", port=free_port())
            stack.callback(server.stop)
            names["redis_url"] = server.url
        yield names


class Stripe(Shop):
    """What the pages reach at `addresses`: it makes the first refund, and loses its answer."""

    def __init__(self):
        super().__init__()
        self.faults = ["lose"]

    def act(self, method, path, key):
        return {"id": f"re_{super().act(method, path, key)['effect']}", "object": "refund"}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # an SDK leaves its connections open
# Powertools says so of the name that it recommends, which is the same class.
@pytest.mark.filterwarnings("ignore:RedisCachePersistenceLayer:DeprecationWarning")
@pytest.mark.parametrize("page", pages_with("python", long={"agents"}))
def test_every_python_block_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    bank, slow_bank = Bank(tmp_path / "honest", honours_keys=True), Bank(tmp_path / "slow")
    with (
        mock.patch.dict(os.environ),
        bank as honest,
        slow_bank as slow,
        Stripe() as stripe,
        post_office() as post,
        what_only_some_pages_use(page.read_text(), tmp_path) as more,
    ):
        names = {"__name__": "page", "bank": HonestBank(honest), "slow_bank": SlowBank(slow)}
        names |= {"api_key": "sk_test_1", "addresses": {"api": stripe.url}}
        names["post_office"] = post
        names |= more
        for line, code in blocks(page, "python"):
            here = code.replace("https://api.bank.example", f"http://127.0.0.1:{honest.port}")
            source = "\n" * (line - 1) + here
            exec(compile(source, str(page), "exec"), names)
        if isinstance(names["bank"], httpx.Client):  # a page has a bank of its own
            names["bank"].close()
        for payments in (honest.ledger(), slow.ledger()):
            assert len({(p["payment_id"], p["key"]) for p in payments}) == len(payments), (
                "a page paid twice"
            )
        assert stripe.effects == len(stripe.done), "a page refunded without a key"
        assert len(stripe.requests) == stripe.effects + (1 if stripe.requests else 0)
    said = capsys.readouterr().out
    for line, code in blocks(page, "python"):
        for promised in re.findall(r"print\(.*\) +# (.+)$", code, re.MULTILINE):
            assert promised.split(":")[0] in said, f"{page.name}:{line} promises {promised!r}"


# These import frameworks or simulate days: other tests guard the same code in less time.
LONG = {"agents", "approvals-in-frameworks", "dbos-and-celery", "mcp", "simulations", "temporal"}


@pytest.mark.parametrize("page", pages_with("console", long=LONG))
def test_every_transcript_is_what_happens(page, tmp_path):
    if "effectonce examples" not in page.read_text():
        (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "COLUMNS": "100",
    }
    try:
        _replay(page, tmp_path, environment)
    finally:
        for left in tmp_path.glob("*.pid"):  # a server that a page starts, and did not come to end
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(left.read_text()), signal.SIGKILL)


def words_of(command):
    """Return the program and its arguments; a shell runs what only a shell understands."""
    program, *arguments = shlex.split(command)
    python = {"python": [], "effectonce": ["-m", "effectonce.cli"]}.get(program)
    if python is None or re.search(r"[|<>&;$*]", command):
        return ["bash", "-c", command]
    return [sys.executable, *python, *arguments]


def _replay(page, folder, environment):
    for line, block in blocks(page, "console"):
        for command, expected in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            if command.startswith(NOT_REPLAYED):
                continue
            done = subprocess.run(
                words_of(command),
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            shown = done.stdout + ("Killed\n" if done.returncode in (-9, 137) else done.stderr)
            pattern = ".*".join(re.escape(part) for part in expected.split("…"))
            assert re.fullmatch(pattern, shown, re.DOTALL), (
                f"{page.name}:{line} `{command}` printed\n{shown}"
            )


def test_the_readme_shows_the_guarantees_as_the_code_has_them():
    table = re.search(
        r"<!-- guarantees -->\n(.*?)<!-- /guarantees -->",
        (ROOT / "README.md").read_text(),
        re.DOTALL,
    )[1]
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()[2:]
    ]
    shown = {
        (Kind(row[0].strip("`")), capability): cell
        for row in rows
        for capability, cell in zip(Capability, row[1:], strict=True)
    }
    assert shown == {cell: guarantee.promise for cell, guarantee in GUARANTEES.items()}


def marked(page, mark):
    return re.search(
        rf"<!-- {mark} -->\n(.*?)<!-- /{mark} -->",
        (ROOT / "docs" / "reference" / page).read_text(),
        re.DOTALL,
    )[1]


def test_the_page_of_tables_is_what_the_code_has():
    """After a change: `effectonce classify --tables`, between the two marks."""
    from effectonce.cli._tables import markdown

    assert marked("errors-of-others.md", "tables") == markdown() + "\n"


def test_the_page_of_providers_is_what_the_files_have():
    """After a change: `python -m effectonce.cli._provider_page`, between the two marks."""
    from effectonce.cli._provider_page import markdown

    assert marked("providers.md", "providers") == markdown() + "\n"


def test_every_link_within_the_page_of_providers_leads_to_a_heading():
    page = marked("providers.md", "providers")
    headings = {
        re.sub(r"[^\w -]", "", line[4:].lower()).replace(" ", "-")
        for line in page.splitlines()
        if line.startswith("### ")
    }

    assert set(re.findall(r"\]\(#([^)]+)\)", page)) == headings


def test_every_field_of_a_provider_is_on_its_page():
    from effectonce.providers import Fact, Provider
    from effectonce.providers._model import ErrorMeaning, ProviderKey, ProviderProbe

    page = (
        (ROOT / "docs" / "reference" / "providers.md")
        .read_text()
        .partition("<!-- providers -->")[0]
    )

    for kind in (Provider, ProviderKey, ProviderProbe, ErrorMeaning, Fact):
        assert [f.name for f in fields(kind) if f"`{f.name}`" not in page] == []


def test_the_page_of_the_gate_is_what_the_code_has():
    """After a change: `effectonce classify --gate`, between the two marks."""
    from effectonce.cli._tables import gate_markdown

    assert marked("retries.md", "gate") == gate_markdown() + "\n"


def test_the_page_of_the_breaker_shows_its_moves_as_the_code_has_them():
    by_hand = {
        event: to
        for (_, event), to in MOVES.items()
        if all((phase, event) in MOVES for phase in Phase)
    }
    rows = [
        f"| `{phase}` | {event} | `{to}` |"
        for (phase, event), to in MOVES.items()
        if event not in by_hand
    ]
    rows += [f"| any | {event} | `{to}` |" for event, to in by_hand.items()]

    assert marked("breaker.md", "moves").splitlines()[2:] == rows


def test_the_page_of_the_breaker_shows_what_counts_as_the_code_has_it():
    def said(sign):
        buckets = (
            bucket for bucket in Bucket if sign_of(Verdict(bucket, Certainty.AMBIGUOUS)) is sign
        )
        return ", ".join(f"`{bucket}`" for bucket in buckets)

    assert marked("breaker.md", "signs").splitlines()[2:] == [
        f"| a result, {said(Sign.SUCCESS)} | success |",
        f"| {said(Sign.FAILURE)}, whatever else is said about a whole host | failure |",
        f"| {said(Sign.NEUTRAL)}, whatever is said about our own process | nothing |",
    ]


def test_every_parameter_of_the_breaker_is_on_its_page_with_its_default():
    policy = re.search(
        r"## Policy\n(.*?)\n## ",
        (ROOT / "docs" / "reference" / "breaker.md").read_text(),
        re.DOTALL,
    )[1]
    rows = re.findall(r"^\| (`.+?) \| (.+?) \|", policy, re.MULTILINE)
    shown = {name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    plain = {
        f.name: f.default
        for f in fields(Breaker)
        if f.default is not None and not isinstance(f.default, frozenset)
    }

    assert set(shown) == {f.name for f in fields(Breaker)}
    assert {
        name
        for name, default in plain.items()
        if f"{default:g}" not in shown[name] and str(default) not in shown[name]
    } == set()


def test_everything_that_can_be_declared_is_in_the_docs():
    from effectonce.workflows import WorkflowOptions

    def rows(page):
        named = re.findall(r"^\| (`.+?`) \|", (ROOT / "docs" / page).read_text(), re.MULTILINE)
        return {name for names in named for name in re.findall(r"`(\w+)`", names)}

    declared = {*inspect.signature(Guard).parameters, *inspect.signature(Guard.tool).parameters} - {
        "self"
    }

    assert declared - rows("reference/contracts.md") == set()
    assert set(WorkflowOptions.__annotations__) - rows("howto/workflows.md") == set()


def test_the_readme_counts_what_there_is():
    from effectonce._core.classification.tables import TABLES
    from effectonce.providers import providers
    from effectonce.testing.mutants import MUTANTS
    from tests.conformance import test_wire_mutants as wire
    from tests.crash.test_flow_mutants import MUTANTS as FLOWS

    readme, proof = (
        (ROOT / "README.md").read_text(),
        (ROOT / "docs" / "explanation" / "proof.md").read_text(),
    )

    assert f"({sum(len(table.rows) for table in TABLES)} rows for " in readme
    assert f"[{len(providers())} APIs]" in readme
    statements = len(wire.SQLITE) + len(wire.POSTGRES) + len(wire.REDIS)
    broken = (
        f" {len(MUTANTS)} broken stores, {len(FLOWS)} broken flows, and {statements} broken"
        " statements "
    )
    assert broken in readme
    assert broken in proof


def test_the_readme_is_read_in_five_minutes():
    assert len((ROOT / "README.md").read_text().split()) <= 1100


def test_code_comes_before_line_31_of_the_readme():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert lines.index("```python") < 30


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_public_name_and_error_is_in_the_reference():
    import effectonce

    reference = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    missing = [name for name in effectonce.__all__ if f"`{name}" not in reference]
    assert missing == []


def anchors(page):
    """The headings of a page, as a link names them."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_to_a_section_lead_to_a_heading():
    for name in ("coming-from", "troubleshooting", "how-it-compares", "checklists", "from-the"):
        (page,) = (p for p in PAGES if p.name.startswith(name))
        for target, anchor in re.findall(r"\]\((?!http)([^)#]*)#([^)]+)\)", page.read_text()):
            there = page.parent / target if target else page
            assert anchor in anchors(there), f"{page.name}: {target}#{anchor}"


def test_every_name_of_ours_that_stands_for_one_of_theirs_exists():
    page = (ROOT / "docs" / "explanation" / "from-the-documents.md").read_text()

    names = set(re.findall(r"\beffectonce(?:\.\w+)+", page))

    assert len(names) > 100
    for name in names:
        pkgutil.resolve_name(name)
    for path in re.findall(r"`((?:examples|tests)/[\w/]+\.py)", page):
        assert (ROOT / path).exists(), path


def test_each_error_names_its_section_of_the_page_that_helps():
    import effectonce.stores.base
    from effectonce import EffectOnceError

    page = ROOT / "docs" / "reference" / "troubleshooting.md"

    def kinds(of):
        return {of}.union(*map(kinds, of.__subclasses__()))

    named = {
        kind.docs for kind in kinds(EffectOnceError) if kind.__module__.startswith("effectonce")
    }

    assert effectonce.stores.base.StoreUnusable.docs == "troubleshooting#store_unusable"
    assert named - {f"{page.stem}#{anchor}" for anchor in anchors(page)} == set()
    for section in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:-1]:
        code = section.partition("\n")[0]
        assert f"{page.stem}#{code.lower()}" in named, code
        assert section.count("- **") == 4, code


def test_the_page_of_an_error_is_no_part_of_what_is_said_about_it():
    from effectonce import InDoubt

    error = InDoubt("it may have happened")

    assert error.docs == "troubleshooting#outcome_unknown"
    assert str(error) == "it may have happened"
    assert sorted(error.as_model_error()) == ["code", "corrective_action", "message", "retriable"]


@pytest.mark.parametrize(
    "page",
    ["reference/troubleshooting", "explanation/checklists", "explanation/from-the-documents"],
)
def test_every_command_that_a_page_names_is_one(page):
    import click

    from effectonce.cli import main

    text = (ROOT / "docs" / f"{page}.md").read_text()

    for line in re.findall(r"`effectonce ([^`]+)`", text):
        words, command = shlex.split(line), main
        while isinstance(command, click.Group) and words:
            command = command.get_command(click.Context(command), words.pop(0))
            assert command, line
        options = {name for option in command.params for name in option.opts}
        assert {word for word in words if word.startswith("-")} <= options, line


def test_every_make_target_is_in_the_help():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = set(
        re.findall(
            r"make ([a-z-]+)",
            subprocess.run(
                ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout,
        )
    )
    assert {"demo", "test", "check", "bench", "soak", "model", "help"} <= shown == targets
