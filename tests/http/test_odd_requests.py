"""Requests as nobody expects them, and clients that cannot see everything."""

import asyncio

import pytest

from effectonce import Guard
from tests.http.helpers import Shop, ask, guarded, run


def test_a_method_in_small_letters_is_the_same_method():
    """`fetch(url, {method: "patch"})` sends it like that, and Django does not tell them apart."""

    async def main():
        shop = Shop()
        app = guarded(shop)
        seen = [await ask(app, method=method) for method in ("patch", "PATCH", "Patch")]
        return shop.effects, seen, await ask(app, method="patch", key=None)

    effects, seen, without = run(main)

    assert (effects, [s.status for s in seen], [s.replayed for s in seen]) == (
        1,
        [201] * 3,
        [False, True, True],
    )
    assert without.json["code"] == "KEY_MISSING"


def test_what_may_have_no_end_is_not_waited_for_by_http_1_0():
    """It would fill the disk. It is more than is kept, so nobody gets it again anyway."""
    left = []

    async def streaming(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(5):
            await send({"type": "http.response.body", "body": b"x" * 100, "more_body": True})
            left.append(len(seen))
        await send({"type": "http.response.body", "body": b""})

    seen = []

    async def main():
        async def look(message):
            seen.append(message)

        return await ask(guarded(Shop(streaming), response_max=250), on_send=look, version="1.0")

    whole = run(main)

    assert (left[:2], left[2] > 0, len(whole.body), whole.complete) == ([0, 0], True, 500, True)


@pytest.mark.parametrize("kind", ["content-type", "content-encoding"])
def test_a_header_that_comes_twice_counts_with_both_its_lines(kind):
    async def main():
        shop = Shop()
        app = guarded(shop)

        def lines(first):
            async def both(scope, receive, send):
                scope["headers"] = [
                    (kind.encode(), first),
                    *scope["headers"],
                    (kind.encode(), b"application/json"),
                ]
                await app(scope, receive, send)

            return both

        return [await ask(lines(first)) for first in (b"text/a", b"text/a", b"text/b")]

    seen = run(main)

    assert [s.status for s in seen] == [201, 201, 422]


@pytest.mark.parametrize(
    ("path", "first", "same", "others"),
    [
        ("/pay/a/b", b"/pay/a%2Fb", b"/pay/a%2fb", (b"/pay/a/b", b"/pay/%61%2Fb")),
        ("/pay/Ren\ufffd", b"/pay/Ren%E9", b"/pay/Ren%e9", (b"/pay/Ren%E8", b"/pay/Ren%EF%BF%BD")),
    ],
    ids=["a slash that is none", "no UTF-8"],
)
def test_two_paths_that_a_server_decodes_to_one_are_two(path, first, same, others):
    """A gateway sends them on as they came, and what is behind it may tell them apart."""

    async def main():
        app = guarded(Shop())
        return [await ask(app, path=path, raw_path=raw_path) for raw_path in (first, same, *others)]

    seen = run(main)

    assert [(s.status, s.replayed) for s in seen] == [
        (201, False),
        (201, True),
        (422, False),
        (422, False),
    ]


# ---------------------------------------------------------------- layers outside that hand a
# request on twice


def test_a_layer_outside_that_asks_again_is_not_past_us():
    """It calls the app once more with the same scope, after a deadlock: that is another attempt
    of the same request.
    """

    async def main():
        shop = Shop(RuntimeError("deadlock"))
        app = guarded(shop, profile="stripe_v2")

        async def patient(scope, receive, send):
            try:
                await app(scope, receive, send)
            except RuntimeError:
                await app(scope, body_again, send)

        return shop, await ask(patient), await ask(patient)

    shop, first, again = run(main)

    assert (first.status, again.status, first.replayed, again.replayed) == (201, 201, False, True)
    assert (shop.effects, first.body) == (2, again.body), "the deadlock, and the one that counts"


def test_an_app_that_is_asked_after_another_one_is_guarded_as_well():
    """A cascade: where the first app knows nothing of a path, the second is asked, with the same
    scope.
    """
    guard, second = Guard("memory://", cache=0), Shop()

    async def main():
        apps = guarded(Shop(404, 404), guard, name="first"), guarded(second, guard, name="second")

        async def cascade(scope, receive, send):
            heard, headers = [], scope["headers"]

            async def hear(message):
                heard.append(message)

            await apps[0](scope, receive, hear)
            assert (heard[0]["status"], scope["headers"]) == (404, headers)
            await apps[1](scope, body_again, send)

        told = {"headers": [("accept-encoding", "gzip")]}
        return await ask(cascade, **told), await ask(cascade, **told)

    first, again = run(main)

    assert [(s.status, s.replayed) for s in (first, again)] == [(201, False), (201, True)]
    assert second.effects == 1


def test_a_request_that_is_cancelled_twice_leaves_its_scope_as_it_was():
    """Its app sees no `accept-encoding`, and that the request is guarded already; layers outside
    see it as before.
    """

    async def main():
        seen, kept = [], []

        async def slow_to_end(scope, _receive, _send):
            seen.append(sorted(scope))
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(5):
                    await asyncio.sleep(0)

        shop = Shop(slow_to_end)
        app = guarded(shop)

        async def outside(scope, receive, send):
            before = dict(scope)
            try:
                await app(scope, receive, send)
            finally:
                kept.append((scope == before, scope["headers"] is before["headers"]))

        asking = asyncio.create_task(ask(outside, headers=[("accept-encoding", "gzip")]))
        await shop.started.wait()
        for _ in range(2):
            asking.cancel()
            await asyncio.sleep(0)
        await asyncio.wait([asking])
        return seen, kept

    seen, kept = run(main)

    assert "effectonce.seen" in seen[0]
    assert kept == [(True, True)]


async def body_again():
    return {"type": "http.request", "body": b'{"amount":1}', "more_body": False}
