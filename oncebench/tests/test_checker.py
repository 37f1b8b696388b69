"""History in, verdict out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oncebench.checker import UNSENT, Counted, Expected, History, Report, judge

PAID = Counted(path="/pay", order="o1", amount=100, receipt="receipt-1")
AGAIN = Counted(path="/pay", order="o1", amount=100, receipt="receipt-2")
WISH = Expected(wish="pay", order="o1")
NOT_APPROVED = Expected(wish="pay", order="o1", effects=0, ends=UNSENT)
UNKNOWABLE = Expected(wish="pay", order="o1", knowable=False)


def told(says, result=None):
    return Report(wish="pay", says=says, result=result)


DONE = told("done", {"receipt": "receipt-1"})


@pytest.mark.parametrize(
    ("counted", "reports", "expected", "verdict"),
    [
        ([PAID], [DONE], WISH, "ok"),
        ([PAID], [told("happened")], WISH, "ok"),
        ([PAID, AGAIN], [DONE], WISH, "D"),
        ([PAID, AGAIN], [told("unknown")], UNKNOWABLE, "D"),
        ([], [DONE], WISH, "F"),
        ([PAID], [told("failed")], WISH, "F"),
        ([PAID], [told("done", {"receipt": "receipt-9"})], WISH, "F"),
        ([PAID], [told("unknown"), DONE], WISH, "ok"),
        ([PAID], [told("unknown")], WISH, "W"),
        ([PAID], [told("busy")], WISH, "W"),
        ([PAID], [told("raised")], WISH, "W"),
        ([PAID], [told("unknown")], UNKNOWABLE, "ok"),
        ([PAID], [told("raised")], UNKNOWABLE, "ok"),
        ([], [told("unknown")], WISH, "W"),
        ([], [told("unknown")], UNKNOWABLE, "ok"),
        ([], [told("raised")], WISH, "L"),
        ([], [told("failed")], WISH, "W"),
        ([], [], WISH, "L"),
        ([PAID], [told("waiting")], WISH, "F"),
        ([], [told("waiting")], NOT_APPROVED, "ok"),
        ([], [told("unknown")], NOT_APPROVED, "W"),
        ([PAID], [told("waiting"), DONE], NOT_APPROVED, "D"),
        ([PAID], [told("waiting")], replace(NOT_APPROVED, amount=900), "ok"),
        ([PAID], [DONE], replace(NOT_APPROVED, amount=900), "F"),
    ],
)
def test_the_verdict_of_one_wish(counted, reports, expected, verdict):
    history = History(counted=counted, reports=reports)

    assert judge(history, [expected]).verdict == verdict


def test_a_caller_who_gets_the_answer_of_another_amount_was_told_something_false():
    other = Expected(wish="other", order="o1", ends=frozenset({"conflict"}))
    reports = [DONE, Report(wish="other", says="done", result={"receipt": "receipt-1"})]

    judged = judge(History(counted=[PAID], reports=reports), [WISH, other])

    assert judged.verdict == "F"


def test_an_empty_result_is_a_result():
    expected = Expected(wish="pay", order="o1", result={"value": []})

    right = judge(History(counted=[PAID], reports=[told("done", [])]), [expected])
    wrong = judge(History(counted=[PAID], reports=[told("done", None)]), [expected])

    assert (right.verdict, wrong.verdict) == ("ok", "F")


def test_a_person_is_counted_also_where_nothing_could_know():
    judged = judge(History(counted=[PAID], reports=[told("unknown")]), [UNKNOWABLE])

    assert (judged.verdict, judged.persons, judged.faults) == ("ok", 1, 1)


def test_nothing_judged_is_no_pass():
    assert judge(History(), []).verdict == "L"


def test_the_worst_wish_decides():
    second = Expected(wish="second", order="o2")
    reports = [DONE, Report(wish="second", says="unknown")]

    judged = judge(History(counted=[PAID], reports=reports), [WISH, second])

    assert judged.verdict == "W"
    assert "second" in judged.why
