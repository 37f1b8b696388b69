"""Who may import whom. The house stays clean because this test says so."""

import ast
import functools
import itertools
import re
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "effectonce"
FILES = sorted(SOURCE.rglob("*.py"))

# Rooms from the ground up: a room imports rooms of lower floors, and its own files; no other
# room of its floor.
LAYERS = (
    ("_credentials", "_drivers", "_forks", "_random", "_text"),
    ("_core", "_log"),
    ("_environment", "errors"),
    ("_validate", "effect"),
    ("outcome", "policy", "providers", "stores"),
    ("_runtime", "health"),
    ("retries",),
    ("observe",),
    ("_tools",),
    ("allowances", "approvals"),
    ("recovery",),
    ("dead_letters", "workflows"),
    ("guard",),
    ("_api",),
    ("__init__",),
    ("http", "lint", "llm", "mcp", "simulate", "testing", "views"),
    ("dashboard", "integrations"),
    ("cli",),
    ("__main__",),
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
IMPURE = set(
    """
    asyncio os random secrets socket subprocess tempfile threading time pathlib io logging
    """.split()
)
CORE_MAY_USE = {"msgspec", "orjson"}  # pure functions over data
OPTIONAL = set(
    """
    agent_framework pytest hypothesis pydantic rich click psycopg asyncpg redis hiredis httpx
    aiosqlite sqlite3 cryptography aiohttp anthropic botocore fastapi google httpx2 jinja2
    python_multipart openai requests starlette strands stripe tenacity urllib3 uvicorn
    prometheus_client opentelemetry structlog agents autogen_agentchat autogen_core celery
    crewai dbos langchain langchain_core langgraph pydantic_ai restate temporalio
    """.split()
)
FRAMEWORKS = {
    "_langgraph_pause.py": "langchain_core, langgraph",
    "_openai_pause.py": "agents",
    "_temporal_questions.py": "temporalio.workflow",
    "agent_framework.py": "agent_framework, pydantic",
    "anthropic_runner.py": "anthropic, pydantic",
    "autogen.py": "autogen_agentchat, autogen_core",
    "celery.py": "celery.app.task",
    "crewai.py": "crewai, pydantic",
    "dbos.py": "dbos",
    "google_adk.py": "google.adk",
    "langchain.py": "langchain.agents.middleware, langchain_core, langgraph.prebuilt, pydantic",
    "openai_agents.py": "agents, pydantic",
    "restate.py": "restate",
    "pydantic_ai.py": "pydantic, pydantic_ai, pydantic_ai.capabilities",
    "strands.py": "strands",
    "temporal.py": "temporalio.plugin",
}  # theirs, whatever that imports
# not installed here
ELSEWHERE = {f"{path.parent.name}.py" for path in ROOT.glob("tests/frameworks/*/requirements.txt")}


def room(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@functools.cache
def syntax_tree(path):
    return ast.parse(path.read_text())


@functools.cache
def imports(path):
    """The modules that a file imports, at any depth."""
    return list(_imports(path))


def _imports(path):
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            if node.module == "effectonce":
                yield from (
                    f"effectonce.{alias.name}"
                    for alias in node.names
                    if (SOURCE / f"{alias.name}.py").exists()
                )


def module_name(path):
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)


def top_modules(path):
    return {module.split(".")[0] for module in imports(path)}


def rooms_imported(path):
    for module in imports(path):
        if module.split(".")[0] == "effectonce":
            yield module.split(".")[1] if "." in module else "__init__"


def test_a_room_imports_only_rooms_below_it():
    wrong = [
        f"{path.relative_to(SOURCE)} must not import {imported}"
        for path in FILES
        for imported in rooms_imported(path)
        if LEVEL[imported] >= LEVEL[room(path)] and imported != room(path)
    ]
    assert wrong == []


def test_the_core_is_pure():
    pure = (sys.stdlib_module_names - IMPURE) | CORE_MAY_USE
    wrong = [
        f"{path.name} imports {module}"
        for path in (SOURCE / "_core").rglob("*.py")
        for module in imports(path)
        if module.split(".")[0] not in pure and not module.startswith("effectonce._core")
    ]
    assert wrong == []


IMPORTS_AT_THE_TOP = {
    "stores/keyring.py": {"cryptography"},
    "stores/redis/connection.py": {"hiredis"},
    "http/gateway/upstream.py": {"httpx"},
    "mcp/_upstream.py": {"httpx"},
    "providers/_aws.py": {"botocore"},  # for types
    "observe/prometheus.py": {"prometheus_client"},
    "observe/otel.py": {"opentelemetry"},
    "observe/logs.py": {"structlog"},
}
DRIVERS = {"sqlite": {"sqlite3"}, "postgres": {"psycopg"}}


def test_no_optional_library_is_imported_at_the_top():
    allowed = IMPORTS_AT_THE_TOP | {
        f"integrations/{name}": {part.split(".")[0] for part in theirs.split(", ")}
        for name, theirs in FRAMEWORKS.items()
    }
    for path in FILES:
        if room(path) in ("testing", "cli", "dashboard"):
            continue
        name = str(path.relative_to(SOURCE))
        optional = top_modules(path) & OPTIONAL
        assert optional <= allowed.get(name, DRIVERS.get(path.parent.name, set())), name


def test_nothing_stored_can_run():
    unsafe = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    assert [path for path in FILES if top_modules(path) & unsafe] == []


def test_importing_effectonce_does_not_import_http():
    assert (
        _printed(
            "import effectonce, sys; effectonce.Guard; print([m for m in sys.modules if"
            " m.startswith('effectonce.http')])"
        )
        == "[]"
    )


def test_importing_effectonce_imports_no_driver_and_no_optional_library():
    code = (
        f"import effectonce, sys; effectonce.Guard; print(sorted(set(sys.modules) & {OPTIONAL!r}))"
    )
    assert _printed(code) == "[]"


def test_importing_effectonce_alone_imports_nothing_of_it():
    """So that `effectonce --help` is there at once. The first name brings all of them."""
    code = (
        "import effectonce, sys; print([m for m in sys.modules if m.startswith(('effectonce.',"
        " 'msgspec', 'asyncio'))])"
    )
    assert _printed(code) == "[]"
    assert (
        _printed("import effectonce; print(effectonce.errors.InDoubt is effectonce.InDoubt)")
        == "True"
    )
    assert (
        _printed(
            "import effectonce; print(hasattr(effectonce, 'nothing'), hasattr(effectonce,"
            " '__wrapped__'))"
        )
        == "False False"
    )


def test_importing_effectonce_leaves_what_few_need_for_later():
    heavy = {"pathlib", "urllib.parse", "http", "tempfile", "statistics", "sqlite3"}
    code = (
        "import asyncio, sys; before = set(sys.modules); from effectonce import Guard;"
        f" print((set(sys.modules) - before) & {heavy!r})"
    )
    assert _printed(code) == "set()"


INTEGRATIONS = [
    path
    for name in ("http/client", "http/server", "integrations")
    for path in sorted((SOURCE / name).glob("[a-z]*.py"))
    if path.name not in ELSEWHERE
]


def test_an_integration_imports_no_optional_library():
    modules = [module_name(path) for path in INTEGRATIONS if path.name not in FRAMEWORKS]
    code = f"import sys, {', '.join(modules)}; print(sorted(set(sys.modules) & {OPTIONAL!r}))"
    assert _printed(code) == "[]"


@pytest.mark.long  # the top of each file is read above
@pytest.mark.parametrize(
    "path", [path for path in INTEGRATIONS if path.name in FRAMEWORKS], ids=lambda path: path.name
)
def test_an_adapter_imports_only_its_framework(path):
    theirs = f"import sys, {FRAMEWORKS[path.name]}; known = set(sys.modules)"
    code = f"{theirs}; import {module_name(path)}"
    code += f"; print(sorted((set(sys.modules) - known) & {OPTIONAL!r}))"
    assert _printed(code) == "[]"


def _printed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_one_file_one_idea():
    assert [path for path in FILES if len(path.read_text().splitlines()) > 500] == []
    functions = [
        node
        for path in FILES
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for node in functions:
        first = node.body[1] if ast.get_docstring(node) and node.body[1:] else node.body[0]
        length = node.end_lineno - first.lineno + 1
        # store_machine is a class in a function
        assert length <= 65 or node.name == "store_machine", f"{node.name} has {length} lines"


def test_there_is_one_place_where_a_record_changes():
    changers = [
        p
        for p in FILES
        if "structs import replace" in p.read_text()
        and room(p) not in ("testing", "cli", "simulate")
    ]
    # one reads a record without its approval, one seals and opens fields, on the way
    assert [p.name for p in changers] == ["rules.py", "_standing.py", "encrypted.py"]


def test_only_the_driver_knows_sync_and_async():
    """The flow is written once: no `async def` below the driver, bar the stores' second
    executor.
    """
    for path in FILES:
        if room(path) == "_core":
            assert "async def" not in path.read_text()
            assert "await " not in path.read_text()


def test_except_exception_stands_where_somebody_elses_code_ends():
    """A broad except is allowed around a user's tool and around work done for several callers;
    each says why.
    """
    allowed = {
        "_runtime/performers.py": 2,
        "_runtime/nested_tools.py": 2,
        "_runtime/plain_performers.py": 2,
        "_runtime/heartbeat.py": 2,
        "_runtime/counters.py": 2,
        "recovery/operations.py": 1,
        "workflows/_run.py": 2,
        "workflows/_runs.py": 2,
        "retries/retry.py": 2,
        "retries/circuit.py": 1,
        "retries/guarded_function.py": 2,
        "stores/sqlite/store.py": 3,
        "_core/codec.py": 5,
        "integrations/_agent_tools.py": 3,
        "integrations/fastmcp.py": 1,
        "stores/postgres/pool.py": 1,
        "_core/safe_access.py": 1,
        "_core/classification/classify.py": 1,
        "_runtime/precondition_checks.py": 2,
        "_tools/approval_rule.py": 1,
        "_tools/precondition.py": 2,
        "_tools/spending.py": 1,
        "_tools/observers.py": 1,
        "integrations/crewai.py": 2,
        "recovery/periodic.py": 1,
        "recovery/background.py": 2,
        "providers/probes/_asking.py": 1,
        "providers/probes/google_calendar.py": 1,
        "recovery/spool.py": 1,
        "llm/__init__.py": 2,
        "recovery/reconciler.py": 1,
        "dashboard/_resuming.py": 1,
        "integrations/agent_framework.py": 1,
        "integrations/openai_agents.py": 1,
        "integrations/strands.py": 1,
        "_tools/event_recorder.py": 1,
        "observe/audit.py": 1,
    }
    for path in FILES:
        if room(path) in ("testing", "cli"):
            continue
        lines = path.read_text().splitlines()
        broad = [
            (line, after)
            for line, after in itertools.pairwise(lines)
            if "except Exception" in line or "except BaseException as" in line
        ]
        assert len(broad) == allowed.get(str(path.relative_to(SOURCE)), 0), (path.name, broad)
        assert all("  # " in line or after.lstrip().startswith("# ") for line, after in broad), (
            "it must say why"
        )


def test_every_class_has_a_name_of_its_own():
    """`EffectOnce` is the exception: what a framework takes as a plugin has one name in all
    adapters.
    """
    homes = Counter(
        node.name
        for path in FILES
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in homes.items() if count > 1} <= {"EffectOnce"}


def test_few_modules_stand_at_the_root():
    private = [path.name for path in SOURCE.glob("_*.py") if path.name != "__init__.py"]
    assert len(private) <= 10, private


def test_identity_has_one_home():
    """Two calls are one effect by the rules of one file."""
    callers = [
        path for path in FILES if "effect_key(" in path.read_text().replace("def effect_key(", "")
    ]
    assert [str(path.relative_to(SOURCE)) for path in callers] == ["_tools/identity.py"]


def test_the_map_names_files_that_exist():
    page = (ROOT / "docs/explanation/one-engine.md").read_text()
    named = re.findall(r"`?((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`?", page.split("## The rooms")[1])
    assert len(named) > 20
    assert [
        name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()
    ] == []


LOOK_FOR_THE_END = {
    "_drivers.py": 2,  # the two loops
    "_tools/event_recorder.py": 1,  # passes a flow on, with an observer
    "_tools/searching.py": 1,  # passes a flow on, and writes what finds its effect
    "http/client/grpc.py": 1,  # asks a call that has ended, without waiting
    "http/server/spooled_body.py": 1,  # asks whether a piece of a body is there already
    "stores/_roundtrip.py": 1,  # goes on with an answer whose first exchange went out with others
    # waits for a socket between two commands: blocking, and in two callbacks of an event loop
    "stores/postgres/pool.py": 3,
}


def test_a_generator_of_commands_is_run_by_the_two_drivers():
    """Whatever else looks for the end of a generator is listed here, with its reason."""
    counts = {
        str(path.relative_to(SOURCE)): path.read_text().count("except StopIteration")
        for path in FILES
    }
    assert {name: count for name, count in counts.items() if count} == LOOK_FOR_THE_END


def test_nothing_of_a_tool_is_set_from_outside():
    """What workflows, adapters and observers want of a tool is handed in when it is made."""
    names = "calling|performing|aperforming|plan|setup|terms|hosting|signature|retrying"
    assignment = re.compile(
        rf"^\s*(?!self\.)\w+(\.tool)?\.({names})(\.\w+)? = |^\s*self\.tool\.\w+ = ", re.MULTILINE
    )
    assert [path.name for path in FILES if assignment.search(path.read_text())] == []


REFUSED = re.compile(
    r"\b(somebody|nobody|whoever|everybody|told)\b|\bfor ever\b|\ball the same\b|\bin the"
    r" air\b|\bas good as new\b",
    re.IGNORECASE,
)


def test_people_and_programs_are_named():
    """A caller, a worker, an operator, you; and things are raised, returned, logged or reported.
    "Nobody can know" is the claim.
    """
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (*FILES, *pages)
        for line in path.read_text().splitlines()
        if REFUSED.search(line)
        and "nobody can know" not in line
        and not line.lstrip().startswith("--")  # a comment inside SQL that is stored
    ]
    assert wrong == []


def test_no_circle_of_modules():
    """Types included. What a function imports when it is called is not counted."""
    known = {module_name(path).removesuffix(".__init__"): path for path in FILES}
    graph = {module: set(at_the_top(path, known)) - {module} for module, path in known.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(known)


def at_the_top(path, known):
    body = syntax_tree(path).body
    for node in (
        *body,
        *(inner for outer in body if isinstance(outer, ast.If) for inner in outer.body),
    ):
        if isinstance(node, ast.ImportFrom) and node.module in known:
            yield from (
                f"{node.module}.{a.name}" if f"{node.module}.{a.name}" in known else node.module
                for a in node.names
            )
