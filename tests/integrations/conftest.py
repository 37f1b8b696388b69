"""Engines that start once for each pytest process."""

import pytest

from tests.vendors.conftest import server  # noqa: F401  # a fixture


@pytest.fixture
def wire(server):  # noqa: F811
    server.says(200, {})
    server.requests, server.keys = 0, set()
    return server


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory):
    from tests.servers.temporal import Server

    with Server(tmp_path_factory.mktemp("temporal")) as one:
        yield one


@pytest.fixture(scope="session")
def dbos_clerk(tmp_path_factory):
    from tests.integrations.engines.dbos_rows import dbos

    with dbos(tmp_path_factory.mktemp("dbos")) as one:
        yield one


@pytest.fixture(scope="session")
def celery_post(tmp_path_factory):
    from tests.integrations.engines.celery_rows import celery

    with celery(tmp_path_factory.mktemp("celery")) as one:
        yield one
