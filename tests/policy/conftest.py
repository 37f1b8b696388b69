import pytest


@pytest.fixture(params=["sync", "async"])
def colour(request):
    return request.param
