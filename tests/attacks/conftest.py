"""What the attacks share with other tests."""

from tests.mcp_proxy.conftest import stage

__all__ = ["stage"]
