"""A place: the same for a retry, another for a wish."""

from effectonce import EffectRef, InDoubt, InFlight, Rejected
from effectonce.integrations._occurrence import Occurrences, asked_for, retriable


def test_after_a_failure_it_is_the_same_place():
    places = Occurrences()
    first = places.take("pay", b"p")
    places.give_back("pay", b"p", first)

    assert places.take("pay", b"p") == first == 0


def test_after_a_success_or_beside_one_it_is_another():
    places = Occurrences()

    assert [places.take("pay", b"p") for _ in range(3)] == [0, 1, 2]


def test_one_of_several_that_failed_comes_back_to_its_own_place():
    places = Occurrences()
    taken = [places.take("pay", b"p") for _ in range(3)]
    places.give_back("pay", b"p", taken[1])

    assert places.take("pay", b"p") == 1
    assert places.take("pay", b"p") == 3


def test_other_requests_do_not_move_it():
    places = Occurrences()
    places.take("pay", b"q")
    places.take("look", b"p")

    assert places.take("pay", b"p") == 0


def test_equal_arguments_ask_for_the_same():
    assert (
        asked_for(("p", 1), {"a": 1, "b": 2})
        == asked_for(["p", 1.0], {"b": 2, "a": 1})
        != asked_for(("p",), {})
    )
    assert asked_for((object(),), {}) == b""


def test_what_is_known_about_an_effect_decides_and_other_errors_may_be_retried():
    known = Rejected("declined")
    known.effectonce_of = "f" * 40
    errors = (
        InFlight("x"),
        InDoubt("x", effect=EffectRef("pay", "f" * 40)),
        known,
        RuntimeError("a bug"),
    )

    assert [retriable(error) for error in errors] == [True, False, False, True]
