"""Identity stability, as a table: on the real engines, with real worker processes that are
really killed, counted by another process.

Each row is what happens, and how many effects were wished for; as many must land. The page
docs/reference/identity.md shows this table.
"""

import asyncio
import re
from pathlib import Path

import pytest

from tests.tiers import long_except

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "identity.md"
TABLE = {
    "Temporal": {
        "the activity fails after the tool, and is retried": 1,
        "a local activity fails after the tool, and is retried": 1,
        "the worker is killed after the effect, another resumes": 1,
        "the workflow is retried; other activities come first, and a volatile argument is paraphrased": (
            1
        ),
        "the workflow is reset": 1,
        "the workflow's code catches the failure, and calls again": 1,
        "the same workflow id is started again (redrive)": 1,
        "a child workflow, in a parent that is retried": 1,
        "it continues as new twice, and is reset then": 3,
        "called three times on purpose, two of them side by side": 3,
    },
    "DBOS": {
        "the step fails after the tool, and is retried": 1,
        "the process is killed after the effect, another recovers": 1,
        "the process is killed between two steps": 1,
        "the workflow's code catches the failure, and calls again": 1,
        "it is forked (redrive), also after the code before the step has changed": 1,
        "a child workflow, in a parent that is forked": 1,
        "called twice on purpose": 2,
        "called twice on purpose, side by side": 2,
    },
    "Celery": {
        "the task fails after the tool, and retries itself": 1,
        "its process is killed after the effect, and it is delivered again": 1,
        "the whole worker is killed after the effect; the message is restored": 1,
        "it is sent again by hand, under its id or with its header (redrive)": 1,
        "a task that is sent by a task, which is retried": 1,
        "sent twice on purpose": 2,
    },
    "LangGraph": {
        'the process is killed after the effect, another resumes; durability="sync"': 1,
        'the process is killed after the effect, another resumes; durability="async"': 1,
        'the process is killed after the effect, another resumes; durability="exit"': 1,
        "the process is killed, and the user asks again: the model decides again, with another call id and other words": (
            1
        ),
        "three calls side by side in one message, and the process is killed during one": 3,
        "it is run again from all its checkpoints, and after update_state (time travel)": 1,
        "the model saw the result, and calls again on purpose": 2,
        "a person approves before the tool (interrupt), and the process is killed after the effect": (
            1
        ),
        "a node fails after the tool, and is retried by its policy": 1,
        "a person is asked after the tool (interrupt), and the node runs again with the answer": 1,
        "a node is sent three times side by side, two of them equal, and one is retried": 3,
        "a node whose step has a name is run again from an older checkpoint (time travel)": 1,
        "a node is visited twice on purpose": 2,
    },
}


def markdown():
    rows = [
        f"| {engine} | {what} | {wished} |"
        for engine, table in TABLE.items()
        for what, wished in table.items()
    ]
    return "\n".join(["| engine | what happens | effects |", "|---|---|---|", *rows, ""])


async def of_temporal(server, folder):
    from tests.integrations.engines import temporal_rows

    async with temporal_rows.temporal(server, folder) as (client, crew):
        landed = {what: effects async for what, effects in temporal_rows.rows(client, crew)}
        return landed, crew.planned()


def of_dbos(clerk):
    from tests.integrations.engines import dbos_rows

    return dict(dbos_rows.rows(clerk)), clerk.planned()


def of_celery(post):
    from tests.integrations.engines import celery_rows

    return dict(celery_rows.rows(post)), post.planned()


def of_langgraph(folder, saver, effects):
    from tests.integrations.engines import langgraph_rows

    with langgraph_rows.langgraph(folder, saver, effects) as clerk:
        return dict(langgraph_rows.rows(clerk)), clerk.planned()


# LangGraph with both of its checkpointers, and with our store on the same database as the
# checkpoints
RUNS = {
    "Temporal": lambda given: asyncio.run(of_temporal(given("temporal_server"), given("tmp_path"))),
    "DBOS": lambda given: of_dbos(given("dbos_clerk")),
    "Celery": lambda given: of_celery(given("celery_post")),
    "LangGraph on SQLite": lambda given: of_langgraph(
        given("tmp_path"),
        str(given("tmp_path") / "graph.db"),
        f"sqlite:///{given('tmp_path') / 'effects.db'}",
    ),
    "LangGraph on PostgreSQL": lambda given: of_langgraph(
        given("tmp_path"), given("database"), given("database")
    ),
}


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize(
    "run",
    long_except(RUNS.keys() - {"LangGraph on PostgreSQL"}, RUNS),
)
def test_what_was_wished_for_lands_and_nothing_else(run, request):
    landed, left = RUNS[run](request.getfixturevalue)

    assert landed == TABLE[run.partition(" on ")[0]]
    assert left == []  # every accident happened


def test_the_page_shows_this_table():
    shown = re.search(r"<!-- identity -->\n(.*?)<!-- /identity -->", PAGE.read_text(), re.DOTALL)[1]

    assert shown == markdown(), markdown()
