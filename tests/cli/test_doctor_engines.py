"""`effectonce doctor --app` looks at the engines that the app uses: the real ones, and none that
it does not use.
"""

import json

import pytest
from tests.cli.test_cli import effectonce

GUARD = """
from effectonce import Guard, Retry

guard = Guard("sqlite:///{}")
guard.counts()

@guard.tool(kind="write", lease_s=20, retry=Retry(attempts=3, deadline_s=40))
def refund(payment_id: str): ...
"""


@pytest.fixture
def found(tmp_path, monkeypatch):
    """What is said about an app, by its subject. What a healthy store is like is left out."""
    monkeypatch.chdir(tmp_path)

    def examined(code, *, subjects=("graph", "Celery", "task", "DBOS")):
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "__init__.py").write_text("")
        (tmp_path / "shop" / "tools.py").write_text(GUARD.format(tmp_path / "effects.db"))
        (tmp_path / "shop" / "app.py").write_text(f"from shop.tools import guard, refund\n{code}")
        said = effectonce("doctor", "--app", "shop.app:guard", "--json")
        assert said.returncode == 0, said.stderr
        findings = [
            each
            for each in json.loads(said.stdout)["findings"]
            if each["subject"].startswith(subjects)
        ]
        told = {each["subject"]: each for each in findings}
        assert len(told) == len(findings)  # nothing twice
        return told

    return examined


GRAPHS = """
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from effectonce.integrations.langchain import durable

builder = StateGraph(MessagesState)
builder.add_node("work", lambda state: state)
builder.add_edge(START, "work")
inner = builder.compile()
outer = StateGraph(MessagesState)
outer.add_node("inner", inner)
outer.add_edge(START, "inner")
saver = SqliteSaver.from_conn_string(":memory:").__enter__()

forgetful = builder.compile()
in_memory = builder.compile(checkpointer=InMemorySaver())
lazy = outer.compile(checkpointer=saver)
careful = durable(lazy)
"""


def test_a_graph_that_a_crash_costs_more_than_it_has_to_is_told(found):
    told = found(GRAPHS)

    assert {subject: bool(each["advice"]) for subject, each in told.items()} == {
        "graph shop.app:forgetful": True,
        "graph shop.app:in_memory": True,
        "graph shop.app:lazy": True,
        "graph shop.app:careful": False,
    }
    assert "no checkpointer" in told["graph shop.app:forgetful"]["found"]
    assert "memory of one process" in told["graph shop.app:in_memory"]["found"]
    assert (
        'durability="async", unless an invocation says otherwise'
        in told["graph shop.app:lazy"]["found"]
    )
    assert "durable(graph)" in told["graph shop.app:lazy"]["advice"]


CELERY = """
from celery import Celery
from effectonce.integrations.celery import EffectOnce

hasty = Celery("hasty", broker="redis://127.0.0.1:1/0", task_cls=EffectOnce(guard), broker_transport_options={"visibility_timeout": 30})
patient = Celery("patient", broker="redis://127.0.0.1:1/0", task_cls=EffectOnce(guard))
other = Celery("other", broker="amqp://127.0.0.1:1//")

@hasty.task(name="safe")
def safe(): ...

@hasty.task(name="early", acks_late=False)
def early(): ...

@hasty.task(name="lost", acks_late=False, reject_on_worker_lost=False)
def lost(): ...

@other.task(name="foreign", shared=False, acks_late=False)
def foreign(): ...
"""


def test_a_message_that_comes_again_too_soon_and_a_task_that_gets_lost_are_told(found):
    told = found(CELERY)

    assert "again after 30 s, but refund may take 40 s" in told["Celery shop.app:hasty"]["found"]
    assert "more than 40 s" in told["Celery shop.app:hasty"]["advice"]
    assert (
        told["Celery shop.app:patient"]["found"]
        == "a message comes again after 1 h; a tool takes 40 s at most"
    )
    assert told["Celery shop.app:patient"]["advice"] == ""
    assert told["task early"]["found"].startswith("acks_late is off")
    assert told["task lost"]["found"].startswith("acks_late and reject_on_worker_lost are off")
    assert set(told) == {
        "Celery shop.app:hasty",
        "Celery shop.app:patient",
        "task early",
        "task lost",
    }


DBOS = """
from dbos import DBOS

DBOS(config={{"name": "shop", "system_database_url": "sqlite:///shop.db", "executor_id": {}}})
"""


def test_processes_that_share_the_name_of_an_executor_are_told(found):
    assert "takes over what others are doing" in found(DBOS.format(None))["DBOS"]["found"]


def test_a_process_with_a_name_of_its_own_is_fine(found):
    assert found(DBOS.format("'worker-1'")) == {}


def test_no_engine_is_imported_to_look_for_it(found, tmp_path):
    imported = tmp_path / "imported"
    code = f"""
import atexit, pathlib, sys

@atexit.register
def tell():
    engines = {{"langgraph", "celery", "dbos", "temporalio"}} & set(sys.modules)
    pathlib.Path({str(imported)!r}).write_text(str(sorted(engines)))
"""

    assert found(code) == {}
    assert imported.read_text() == "[]"
