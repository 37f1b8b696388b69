"""Pages that are kept up to date: what the stream says, to whom, and what it costs the store."""

import asyncio

import pytest
from starlette.requests import Request

from effectonce._core.ops import Browse
from effectonce._core.pages import Recent
from effectonce.dashboard import Access, _live, app
from effectonce.dashboard._live import LiveFeed, end_streams, version_of
from effectonce.dashboard._request import DashboardRequest, RefusedVisit
from effectonce.errors import StoreUnavailable
from tests.server.conftest import browser
from tests.server.shop import Shop


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    for name in ("EVERY_S", "BEAT_S"):
        monkeypatch.setattr(_live, name, 0.01)
    monkeypatch.setattr(_live, "RESTS", 0)


def visit_of(guard, **headers):
    access = Access("vera")
    listed = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/live",
        "headers": listed,
        "query_string": b"",
    }
    visit = DashboardRequest(Request(scope), guard, app(guard, access=lambda _: access).router)
    visit.let_in(access, acting=False)
    return visit


async def events_of(feed, visit):
    """The events of a stream, without what only keeps it open."""
    answer = await feed.stream(visit)
    async for event in answer.body_iterator:
        if not event.startswith(":"):
            yield event


async def first_change(feed, visit, act):
    """What comes after something was done."""
    stream = events_of(feed, visit)
    assert (await anext(stream)).startswith("retry: ")
    await asyncio.to_thread(act)
    return await asyncio.wait_for(anext(stream), 60)


def test_a_new_effect_and_a_settled_doubt_are_changes_on_every_store(anywhere):
    shop = Shop(anywhere)
    seen = [version_of(anywhere, None)]
    shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)
    seen.append(version_of(anywhere, None))
    (doubt,) = anywhere.in_doubt()
    anywhere.refute(doubt.request.key, by="ada", reason="not there")
    seen.append(version_of(anywhere, None))

    assert len(set(seen)) == 3
    assert version_of(anywhere, None) == seen[-1]


def test_a_stream_says_that_something_changed_and_no_more(guard, shop):
    feed = LiveFeed(guard, lambda _: Access("vera"))
    act = lambda: shop.call("chat", "_refund", payment_id="pay_1", amount_minor=1)

    event = asyncio.run(first_change(feed, visit_of(guard), act))

    assert event == f"event: changed\nid: {version_of(guard, None)}\ndata: \n\n"


def test_a_tenant_hears_only_of_its_own(guard, shop):
    before = version_of(guard, "acme")
    shop.call("chat", "_refund", tenant="beta", payment_id="pay_1", amount_minor=1)

    assert version_of(guard, "acme") == before
    assert version_of(guard, "beta") != before


def test_a_browser_that_comes_back_learns_what_it_missed(guard, shop):
    feed = LiveFeed(guard, lambda _: Access("vera"))
    seen = version_of(guard, None)
    shop.call("chat", "_refund", payment_id="pay_1", amount_minor=1)

    async def main():
        stream = events_of(feed, visit_of(guard, last_event_id=seen))
        return [await anext(stream), await anext(stream)]

    assert asyncio.run(main())[1].startswith("event: changed")


def test_however_many_pages_are_open_the_store_is_asked_once_at_a_time(guard, monkeypatch):
    monkeypatch.setattr(_live, "EVERY_S", 3600.0)
    asked, apply = [], guard.store.apply
    monkeypatch.setattr(guard.store, "apply", lambda op: (asked.append(type(op)), apply(op))[1])
    feed = LiveFeed(guard, lambda _: Access("vera"))

    async def main():
        await asyncio.gather(*(feed.version(None) for _ in range(30)))
        await asyncio.gather(*(feed.version(None) for _ in range(30)))

    asyncio.run(main())

    assert asked == [Recent, Browse]


def test_there_are_only_so_many_streams_and_closed_ones_make_room(guard, monkeypatch):
    monkeypatch.setattr(_live, "CONNECTIONS_MAX", 2)
    feed = LiveFeed(guard, lambda _: Access("vera"))

    async def main():
        streams = [(await feed.stream(visit_of(guard))).body_iterator for _ in range(2)]
        for stream in streams:
            await anext(stream)
        with pytest.raises(RefusedVisit, match="Too many pages"):
            await feed.stream(visit_of(guard))
        for stream in streams:
            await stream.aclose()
        return await anext(events_of(feed, visit_of(guard)))

    assert asyncio.run(main()).startswith("retry: ")


def signed_out(_):
    raise RefusedVisit(401, "Who are you?", "")


@pytest.mark.parametrize(
    "access",
    [lambda _: None, signed_out, lambda _: Access("eve")],
    ids=["no access", "no session", "another"],
)
def test_a_stream_ends_with_its_login_and_the_page_learns_it(guard, access):
    async def main():
        return [event async for event in events_of(LiveFeed(guard, access), visit_of(guard))]

    _, changed = asyncio.run(main())
    assert changed.startswith("event: changed")


def test_a_stream_ends_with_the_server_and_after_a_while(guard, monkeypatch):
    feed = LiveFeed(guard, lambda _: Access("vera"))

    async def main():
        return [event async for event in events_of(feed, visit_of(guard))]

    end_streams()
    assert len(asyncio.run(main())) == 1
    feed.ended = False
    monkeypatch.setattr(_live, "LASTS_S", 0.05)
    assert len(asyncio.run(main())) == 1


def test_a_store_that_does_not_answer_is_no_change(guard, monkeypatch):
    def away(op):
        raise StoreUnavailable("away")

    feed = LiveFeed(guard, lambda _: Access("vera"))

    async def main():
        known = await feed.version(None)
        monkeypatch.setattr(guard.store, "apply", away)
        feed._tenants[None].due = 0
        return known, await feed.version(None)

    known, later = asyncio.run(main())
    assert known == later != ""


def test_a_stranger_gets_no_stream(guard):
    answer = browser(guard, None).get("/live")

    assert answer.status_code == 403


def test_lists_are_live_and_the_page_of_an_effect_is_not(viewer, shop):
    reference = shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)
    for path in ("/", "/effects", "/in-doubt", "/approvals", "/prevented"):
        assert 'data-live="/live"' in viewer.get(path).text, path
        assert "data-live=" not in viewer.get(f"{path}?live=off").text

    assert "data-live=" not in viewer.get(f"/effects/{reference}").text
