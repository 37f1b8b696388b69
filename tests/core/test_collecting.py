"""Work that makes no cycles leaves the collector of garbage as it was."""

import gc

import pytest

from effectonce._core.collecting import no_collecting


@pytest.fixture(params=[True, False], ids=["it collects", "it does not"])
def collects(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_the_collector_is_off_within_and_as_it_was_afterwards(collects):
    with no_collecting():
        assert not gc.isenabled()

    assert gc.isenabled() is collects


def test_an_error_leaves_it_as_it_was(collects):
    with pytest.raises(ZeroDivisionError), no_collecting():
        1 / 0  # noqa: B018

    assert gc.isenabled() is collects
