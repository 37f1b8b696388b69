"""Identity stability, as a table: on the real engines, with real worker processes that are really killed, counted by another process.

Each row is what happens, and how many effects were wished for; as many must land. The page docs/reference/identity.md shows this table.
"""

import asyncio
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "identity.md"
TABLE = {
    "Temporal": {
        "the activity fails after the tool, and is retried": 1,
        "a local activity fails after the tool, and is retried": 1,
        "the worker is killed after the effect, another resumes": 1,
        "the workflow is retried; other activities come first, and a volatile argument is paraphrased": 1,
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
}


def markdown():
    rows = [f"| {engine} | {what} | {wished} |" for engine, table in TABLE.items() for what, wished in table.items()]
    return "\n".join(["| engine | what happens | effects |", "|---|---|---|", *rows, ""])


async def of_temporal(folder):
    from tests.integrations.engines import temporal_rows

    async with temporal_rows.temporal(folder) as (client, crew):
        landed = {what: effects async for what, effects in temporal_rows.rows(client, crew)}
        return landed, crew.planned()


def of_dbos(folder):
    from tests.integrations.engines import dbos_rows

    with dbos_rows.dbos(folder) as clerk:
        return dict(dbos_rows.rows(clerk)), clerk.planned()


def of_celery(folder):
    from tests.integrations.engines import celery_rows

    with celery_rows.celery(folder) as post:
        return dict(celery_rows.rows(post)), post.planned()


ENGINES = {"Temporal": lambda folder: asyncio.run(of_temporal(folder)), "DBOS": of_dbos, "Celery": of_celery}


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("engine", TABLE)
def test_what_was_wished_for_lands_and_nothing_else(engine, tmp_path):
    landed, left = ENGINES[engine](tmp_path)

    assert landed == TABLE[engine]
    assert left == []  # every accident happened


def test_the_page_shows_this_table():
    shown = re.search(r"<!-- identity -->\n(.*?)<!-- /identity -->", PAGE.read_text(), re.DOTALL)[1]

    assert shown == markdown(), markdown()
