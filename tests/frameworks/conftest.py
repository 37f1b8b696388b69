from tests.integrations.agents.conftest import bank, guard  # noqa: F401  # fixtures
