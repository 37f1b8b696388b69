"""What the first claim of a call becomes is asked of the table once for each tool."""

from effectonce._core import ops
from effectonce.stores import _births
from effectonce.stores._births import Births
from effectonce.testing.conformance.bench import request, terms


def claim(on, lease_s=30.0):
    return ops.Claim(request("k", on=on), "t", lease_s, dispatch=True)


def packing():
    packed = []
    return Births(lambda record: packed.append(record) or len(packed)), packed


def test_calls_of_one_tool_are_packed_once_also_if_their_terms_are_made_anew():
    births, packed = packing()
    tool = terms()

    births_of_calls = [births.of(claim(on)) for on in (tool, tool, terms(), terms())]

    assert [birth.packed for birth in births_of_calls] == [1, 1, 1, 1]
    assert len(packed) == 1
    assert births_of_calls[0].reply == ops.Held(1, 1, dispatched=True)


def test_another_lease_or_other_terms_are_another_birth():
    births, packed = packing()
    tool = terms()

    assert [
        births.of(claim(*asked)).packed
        for asked in ((tool,), (tool, 5.0), (terms(tool="other"),), (tool, 5.0))
    ] == [
        1,
        2,
        3,
        2,
    ]
    assert [record.lease_until for record in packed] == [30.0, 5.0, 30.0]


def test_no_more_tools_are_remembered_than_there_may_be(monkeypatch):
    monkeypatch.setattr(_births, "TERMS_MAX", 2)
    births, packed = packing()
    for n in range(5):
        assert births.of(claim(terms(tool=f"tool {n}"))).packed == n + 1
    assert packed[4].request.terms.tool == "tool 4"
    assert len(births._same) <= 2
    assert len(births._equal) <= 2
