import pytest

pytest.register_assert_rewrite("effectonce.testing.conformance")
