"""What people decide, counted by what really happened and by what is on the record."""

import asyncio
import re

import pytest

from effectonce import InDoubt
from effectonce._core.ops import Doubt
from effectonce.dashboard import Access
from tests.server.conftest import browser
from tests.server.shop import Shop

ACTS = (
    "confirm",
    "refute",
    "retry",
    "discard",
    "cancel",
    "reconcile",
    "redrive",
    "approve",
    "reject",
)


def seen(pages, path):
    """What the form on a page says that was seen."""
    return re.search(r'name="seen" value="([^"]+)"', pages.get(path).text)[1]


def decide(pages, reference, act, **form):
    given = {"reason": "ticket 812", "seen": seen(pages, f"/effects/{reference}"), **form}
    return pages.post(f"/effects/{reference}/{act}", data=given)


def test_it_happened(shop, operator):
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)

    answer = decide(operator, doubt, "confirm", result='{"receipt": 90071992547409931}')

    assert answer.status_code == 303
    assert "Written down: it happened." in operator.get(answer.headers["location"]).text
    record = shop.record(doubt)
    assert (str(record.state), record.settled_by, record.reason) == (
        "completed",
        "ada",
        "ticket 812",
    )
    with shop.guard.step("chat", "step"):
        assert shop.refund("pay_lost", 1) == {"receipt": 90071992547409931}
    assert shop.ledger == ["pay_lost"]


def test_a_link_cannot_say_that_something_was_decided(shop, operator):
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)

    for act in ACTS:
        assert "Written down" not in operator.get(f"/effects/{doubt}?done={act}").text
        assert "it is settled" not in operator.get(f"/effects/{doubt}?done={act}").text


@pytest.mark.parametrize(
    ("act", "call"),
    [
        ("refute", ("chat", "_refund", {"payment_id": "pay_lost", "amount_minor": 1})),
        ("discard", ("trip", "_ship", {"parcel": "p1"})),
    ],
    ids=["it did not happen", "a letter is given up"],
)
def test_what_a_person_ends_has_failed(shop, operator, act, call):
    scope, tool, arguments = call
    reference = shop.call(scope, tool, **arguments)

    answer = decide(operator, reference, act)

    assert answer.status_code == 303
    assert (shop.state(reference), shop.record(reference).settled_by) == ("failed", "ada")


def test_send_it_again_is_offered_only_where_the_key_is_honoured(shop, operator):
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)

    assert f"/effects/{doubt}/retry" not in operator.get(f"/effects/{doubt}").text
    answer = decide(operator, doubt, "retry")

    assert answer.status_code == 409
    assert "does not honour the key" in answer.text
    assert shop.state(doubt) == "in_doubt"


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"result": "", "reason": "x"}, "Give the result"),
        ({"result": "done", "reason": "x"}, "A text needs quotes"),
        ({"result": "[" * 100_000, "reason": "x"}, "Nothing was changed"),
        ({"result": "null", "reason": "   "}, "Say why"),
        ({"result": "null", "reason": "x" * 100_000}, "cannot stay on the record"),
    ],
)
def test_what_was_typed_wrongly_is_told_and_given_back(shop, operator, form, said):
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)

    answer = decide(operator, doubt, "confirm", **form)

    assert answer.status_code == 422
    assert said in answer.text
    assert f">{form['result']}</textarea>" in answer.text
    assert shop.state(doubt) == "in_doubt"


def test_a_page_that_is_stale_says_what_changed(shop, operator, guard):
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)
    old = seen(operator, f"/effects/{doubt}")
    guard.refute(shop.record(doubt).request.key, by="bob", reason="not on the statement")

    answer = operator.post(
        f"/effects/{doubt}/confirm", data={"result": "1", "reason": "x", "seen": old}
    )

    assert answer.status_code == 409
    assert (
        "When you opened the page it was in doubt; now it is failed. It did not happen: bob"
        " says so." in answer.text
    )
    assert shop.record(doubt).settled_by == "bob"


def test_a_form_that_does_not_say_what_was_seen_is_refused(shop, operator):
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)

    for act in ACTS:
        assert (
            operator.post(
                f"/effects/{doubt}/{act}", data={"reason": "x", "result": "1"}
            ).status_code
            == 409
        )
    assert shop.state(doubt) == "in_doubt"


def test_two_who_decide_at_once_are_one_decision(shop, operator, guard):
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)
    form = {"reason": "x", "seen": seen(operator, f"/effects/{doubt}")}
    other = browser(guard, Access("bob", acts=True))

    answers = [
        operator.post(f"/effects/{doubt}/refute", data=form),
        other.post(f"/effects/{doubt}/refute", data=form),
    ]

    assert [answer.status_code for answer in answers] == [303, 409]
    assert shop.record(doubt).settled_by == "ada"


def test_a_decision_that_does_not_exist_changes_nothing(shop, operator):
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)

    assert decide(operator, doubt, "forget").status_code == 404
    assert shop.state(doubt) == "in_doubt"


def test_the_probe_of_a_tool_is_asked_in_either_colour(shop, operator):
    mailed = shop.call("mail", "_mail", to="ada")
    asyncio.run(shop.acall("post", "_post", to="bob"))
    posted = shop.newest()

    for reference in (mailed, posted):
        unknown = decide(operator, reference, "reconcile")
        assert "The downstream was asked: " in unknown.text
        assert shop.state(reference) == "in_doubt"

    shop.mailed |= {"ada", "bob"}
    for reference in (mailed, posted):
        answer = decide(operator, reference, "reconcile")
        assert "it is settled" in operator.get(answer.headers["location"]).text
        assert shop.state(reference) == "completed"


def test_where_the_key_is_honoured_the_next_call_may_send_it_again(shop, operator, guard):
    booked = shop.call("trip", "_book", seat="1A")
    record = shop.record(booked)
    guard.store.apply(Doubt(record.request.key, record.token, record.epoch, "no answer"))

    answer = decide(operator, booked, "retry")

    assert (
        "Written down: the next call sends the same request again"
        in operator.get(answer.headers["location"]).text
    )
    shop.call("trip", "_book", seat="1A")
    assert shop.record(booked).sends == 2


def test_without_a_probe_nobody_is_asked(shop, operator):
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)

    assert f"/effects/{doubt}/reconcile" not in operator.get(f"/effects/{doubt}").text
    assert decide(operator, doubt, "reconcile").status_code == 409


def test_one_letter_is_redriven_under_its_key(shop, operator):
    letter = shop.call("trip", "_ship", parcel="p1")
    shop.is_open = True

    answer = decide(operator, letter, "redrive")
    again = operator.post(f"/effects/{letter}/redrive", data={"reason": "x", "seen": "claimed-0"})

    assert "1 done." in answer.text
    assert again.status_code == 409
    assert (shop.ledger, shop.state(letter)) == (["p1"], "completed")
    assert [asked.by for asked in shop.guard.dead_letters.show(letter).asked] == ["ada"]


def test_a_letter_that_gives_up_again_says_so(shop, operator):
    letter = shop.call("trip", "_ship", parcel="p1")

    answer = decide(operator, letter, "redrive")

    assert "1 gave up again." in answer.text
    assert "the carrier cannot be reached" in answer.text
    assert shop.ledger == []


def test_a_group_is_redriven_some_at_a_time_and_each_once(shop, operator):
    for n in range(27):
        shop.call(f"trip-{n}", "_ship", parcel=f"p{n}")
    shop.is_open = True
    group = "/letters/redrive?tool=_ship&error=NotSent"

    before = operator.get(group)
    first = operator.post(group, data={"reason": "the carrier is back"})
    second = operator.post(group, data={"reason": "the carrier is back"})
    third = operator.post(group, data={"reason": "the carrier is back"})

    assert "27 of 27 letters would be redriven" in before.text
    assert "25 done." in first.text
    assert "2 more can be done" in first.text
    assert "2 done." in second.text
    assert "There was nothing to redrive." in third.text
    assert sorted(shop.ledger) == sorted(f"p{n}" for n in range(27))


def test_looking_at_what_would_be_redriven_sends_nothing(shop, operator):
    letter = shop.call("trip", "_ship", parcel="p1")
    shop.is_open = True

    operator.get("/letters/redrive?tool=_ship&error=NotSent")

    assert (shop.ledger, shop.state(letter)) == ([], "claimed")


def test_letters_of_async_tools_are_redriven_too(shop, operator):
    asyncio.run(shop.acall("desk", "_call_back", customer="eve"))
    shop.is_open = True

    answer = operator.post("/letters/redrive?tool=_call_back", data={"reason": "the line is back"})

    assert "1 done." in answer.text
    assert shop.ledger == ["eve"]


def test_a_redrive_needs_a_reason(shop, operator):
    letter = shop.call("trip", "_ship", parcel="p1")
    shop.is_open = True

    for answer in (
        decide(operator, letter, "redrive", reason=" "),
        operator.post("/letters/redrive?tool=_ship", data={}),
    ):
        assert answer.status_code == 422
    assert shop.ledger == []


def test_a_letter_of_a_tool_that_is_not_here_says_what_to_do(shop, tmp_path, guard):
    from effectonce import Guard

    letter = shop.call("trip", "_ship", parcel="p1")
    alone = Guard(f"sqlite:///{tmp_path / 'effects.db'}")
    pages = browser(alone, Access("ada", acts=True))

    page = pages.get(f"/effects/{letter}").text

    assert "effectonce serve --app MODULE:GUARD" in page
    assert f"/effects/{letter}/redrive" not in page
    assert "Give it up" in page
    alone.close()


def test_a_run_is_ended(shop, operator):
    with pytest.raises(InDoubt):
        shop.order("ord_1")
    run = re.search(r'href="/workflows/(eff_\w+)"', operator.get("/workflows").text)[1]

    answer = operator.post(
        f"/effects/{run}/cancel",
        data={"reason": "withdrawn", "seen": seen(operator, f"/workflows/{run}")},
    )

    assert answer.headers["location"] == f"/workflows/{run}?done=cancel"
    page = operator.get(answer.headers["location"]).text
    assert "waits to be ended: ada wants it to end: withdrawn" in page
    assert "End it" not in page


def test_what_is_read_only_offers_nothing(shop, viewer):
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)
    letter = shop.call("trip", "_ship", parcel="p1")

    for path in (f"/effects/{doubt}", f"/effects/{letter}", "/letters/redrive?tool=_ship"):
        assert '<form method="post"' not in viewer.get(path).text


def test_decisions_are_in_the_audit(guard, operator):
    shop = Shop(guard)
    doubt = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)

    decide(operator, doubt, "refute")
    shop.audit.flush()

    said = shop.audit.entries(effect=doubt)[-1]
    assert (said.by, said.reason) == ("ada", "ticket 812")
