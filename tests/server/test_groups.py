"""One decision about a group of doubts: in bounded batches, by the rules of one alone."""

import html
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from effectonce import InDoubt
from effectonce.dashboard import Access
from tests.server.conftest import browser
from tests.server.shop import Shop

ADA, BOB = Access("ada", acts=True), Access("bob", acts=True)


def filled(guard, count, tenant=None, shop=None):
    shop = shop or Shop(guard)
    for n in range(count):
        shop.call(
            f"{tenant}-{n}", "_refund", tenant=tenant, payment_id=f"pay_lost_{n}", amount_minor=n
        )
    return shop


def groups_on(pages, path="/in-doubt"):
    return re.findall(r'href="(/in-doubt/groups/g_[0-9a-f]{10})"', pages.get(path).text)


def hidden(text):
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', text)
    return {name: html.unescape(value) for name, value in found}


def a_group(guard, count):
    """A group of doubts, a browser of somebody who decides, and the shop that has them."""
    shop = filled(guard, count)
    pages = browser(guard, ADA)
    [group] = groups_on(pages)
    return shop, pages, group


def decision(pages, group, act="refute", **more):
    seen = hidden(pages.get(group).text)
    return {"act": act, "reason": "ticket 812", "pace": "50", "result": "1", **seen, **more}


def settle_all(pages, group, form):
    """Press the button until there is nothing left to press."""
    answers = []
    while True:
        answer = pages.post(group, data=form)
        assert answer.status_code == 200, answer.text
        answers.append(answer.text)
        form = hidden(answer.text)
        if "after" not in form:
            return answers


def counts(text):
    said = " ".join(re.search(r'role="status">(.*?)</p>', text, re.DOTALL)[1].split())
    return {
        what: int(n.replace(",", "")) for n, what in re.findall(r"([\d,]+) ([a-z ]+)[,.]", said)
    }


def states(guard, tenant=None):
    from effectonce._core.ops import Search

    return [str(r.state) for r in guard.store.apply(Search(limit=10_000, tenant=tenant))]


def test_a_group_is_settled_in_bounded_batches_on_every_store(anywhere, monkeypatch):
    shop, pages, group = a_group(anywhere, 60)

    answers = settle_all(pages, group, decision(pages, group, "confirm", result='{"r": 1}'))

    assert len(answers) == 2
    assert counts(answers[0]) == {"happened": 50}
    assert counts(answers[-1]) == {"happened": 60}
    assert states(anywhere) == ["completed"] * 60
    assert len(shop.ledger) == 60
    with anywhere.step("None-3", "step"):
        assert shop.refund("pay_lost_3", 3) == {"r": 1}


def test_two_people_settle_the_same_group_and_each_effect_once(anywhere):
    filled(anywhere, 40)
    ada, bob = browser(anywhere, ADA), browser(anywhere, BOB)
    [group] = groups_on(ada)
    forms = [decision(ada, group, "refute"), decision(bob, group, "confirm")]

    with ThreadPoolExecutor(2) as both:
        said = list(both.map(settle_all, (ada, bob), (group, group), forms))

    refuted = counts(said[0][-1]).get("did not happen", 0)
    confirmed = counts(said[1][-1]).get("happened", 0)
    found = states(anywhere)
    assert (found.count("failed"), found.count("completed")) == (refuted, confirmed)
    assert refuted + confirmed == 40


def test_what_goes_in_doubt_after_the_page_was_made_is_not_part_of_the_decision(guard):
    shop, pages, group = a_group(guard, 3)
    form = decision(pages, group)
    late = shop.call("late", "_refund", payment_id="pay_lost_late", amount_minor=1)

    settle_all(pages, group, form)

    assert shop.state(late) == "in_doubt"
    assert states(guard).count("failed") == 3


def test_what_another_settled_between_two_batches_stays(guard):
    shop, pages, group = a_group(guard, 3)
    form = decision(pages, group)
    key = guard.in_doubt()[0].request.key
    guard.confirm(key, result=7, by="bob", reason="seen")

    [text] = settle_all(pages, group, form)

    assert counts(text) == {"did not happen": 2}
    assert (guard.find(key).settled_by, str(guard.find(key).state)) == ("bob", "completed")
    assert shop.ledger == ["pay_lost_0", "pay_lost_1", "pay_lost_2"]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"reason": " "}, "Say why"),
        ({"act": "guess"}, "Say what you found"),
        ({"act": "confirm", "result": ""}, "Give the result"),
        ({"act": "confirm", "result": "done"}, "A text needs quotes"),
        ({"until": "nan"}, "what you saw"),
        ({"until": "9e99"}, "what you saw"),
        ({"pace": "inf"}, "how fast"),
        ({"pace": "-1"}, "how fast"),
        ({"pace": "x"}, "could not convert"),
        ({"reason": "x" * 100_000}, "cannot stay on the record"),
    ],
)
def test_a_form_that_cannot_be_used_changes_nothing(guard, form, said):
    _, pages, group = a_group(guard, 2)

    answer = pages.post(group, data=decision(pages, group, **form))

    assert answer.status_code == 422
    assert said in answer.text
    assert states(guard) == ["in_doubt"] * 2


def test_a_viewer_sees_a_group_and_no_form(guard):
    filled(guard, 2)
    pages = browser(guard, Access("vera"))
    [group] = groups_on(pages)

    assert '<form method="post"' not in pages.get(group).text


def test_a_tenant_settles_its_own_alone(anywhere):
    shop = filled(anywhere, 3, "acme")
    filled(anywhere, 3, "globex", shop)
    acme = browser(anywhere, Access("ada", acts=True, tenant="acme"))
    everyone = browser(anywhere, ADA)
    both = groups_on(everyone)
    mine = groups_on(acme)
    [theirs] = set(both) - set(mine)

    assert len(both) == 2
    assert acme.get(theirs).status_code == 404
    stolen = {**decision(everyone, theirs), "until": hidden(acme.get(mine[0]).text)["until"]}
    assert counts(acme.post(theirs, data=stolen).text) == {}
    settle_all(acme, mine[0], decision(acme, mine[0]))

    assert states(anywhere, "acme") == ["failed"] * 3
    assert states(anywhere, "globex") == ["in_doubt"] * 3


def test_a_group_that_is_settled_says_so(guard):
    _, pages, group = a_group(guard, 1)
    settle_all(pages, group, decision(pages, group))

    assert pages.get(group).status_code == 404
    assert "Nothing of this group is in doubt" in pages.get(group).text
    assert pages.get("/in-doubt/groups/nonsense").status_code == 404


def test_letters_of_a_group_are_discarded_some_at_a_time(guard):
    shop = Shop(guard)
    for n in range(27):
        shop.call(f"trip-{n}", "_ship", parcel=f"p{n}")
    pages = browser(guard, ADA)
    [query] = re.findall(r'href="/letters(\?group=g_[0-9a-f]{10})"', pages.get("/letters").text)

    before = pages.get(f"/letters/redrive{query}").text
    first = pages.post(f"/letters/discard{query}", data={"reason": "over", "pace": "10"})
    second = pages.post(f"/letters/discard{query}", data={"reason": "over"})

    assert "27 of them may be discarded" in before
    assert "25 discarded." in first.text
    assert "2 more can be done" in first.text
    assert "2 discarded." in second.text
    assert states(guard) == ["failed"] * 27
    assert shop.ledger == []


# ---------------------------------------------------------------- runs


def run_page(guard, pages):
    [run] = set(re.findall(r'href="(/workflows/eff_\w+)"', pages.get("/workflows").text))
    return run, hidden(pages.get(run).text)


def test_a_run_goes_on_in_the_browser_where_its_code_is(guard):
    shop = Shop(guard)
    with pytest.raises(InDoubt):
        shop.order("ord_1")
    [doubt] = guard.in_doubt()
    guard.confirm(doubt.request.key, result={"receipt": 1}, by="ada", reason="seen")
    pages = browser(guard, ADA)
    run, seen = run_page(guard, pages)

    assert pages.post(f"{run}/resume", data={"seen": "x"}).status_code == 409
    answer = pages.post(f"{run}/resume", data=seen)

    assert answer.status_code == 303
    page = pages.get(answer.headers["location"]).text
    assert "It went on, and has an outcome." in page
    assert shop.ledger == ["pay_lost_ord_1"]  # what was done is not done again


def test_a_run_that_stops_again_says_why(guard):
    shop = Shop(guard)
    with pytest.raises(InDoubt):
        shop.order("ord_1")
    pages = browser(guard, ADA)
    run, seen = run_page(guard, pages)

    answer = pages.post(f"{run}/resume", data=seen)

    assert answer.status_code == 200
    assert "It stopped: InDoubt" in answer.text
    assert shop.ledger == ["pay_lost_ord_1"]


def test_without_its_code_the_page_says_so_and_names_command_and_store(guard, tmp_path):
    from effectonce import Guard

    with pytest.raises(InDoubt):
        Shop(guard).order("ord_1")
    bare = Guard(f"sqlite:///{tmp_path / 'effects.db'}")
    pages = browser(bare, ADA)
    run, seen = run_page(bare, pages)

    text = pages.get(run).text
    refused = pages.post(f"{run}/resume", data=seen)
    bare.close()

    assert "This dashboard has no workflow _order" in text
    assert "effectonce workflow resume eff_" in text
    assert f"sqlite:///{tmp_path / 'effects.db'}" in text
    assert refused.status_code == 409
    assert "Its code is not here" in refused.text
