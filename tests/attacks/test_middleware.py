"""What a client does to an app behind the middleware: bodies that do not end or are costly to
compare, and keys without number.
"""

import asyncio
import sys

import pytest

from effectonce import Guard, StoreUnavailable
from effectonce.http.server.middleware import Quota
from effectonce.stores.memory import MemoryStore
from tests.http.helpers import Shop, ask, guarded, run
from tests.http.test_fingerprint import multipart


async def sent(app, receive):
    """What comes back for a request whose body is what *receive* gives."""
    messages = []

    async def send(message):
        messages.append(message)

    headers = [
        (b"x-tenant", b"alice"),
        (b"idempotency-key", b'"8e03978e-40d5-43dd-bc93-6894a57f9324"'),
    ]
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": "/pay",
        "query_string": b"",
        "headers": headers,
    }
    await app(scope, receive, send)
    return messages[0]["status"], dict(messages[0]["headers"]), messages[1]["body"]


def test_a_body_that_stops_is_not_waited_for():
    async def main():
        shop, begun = Shop(), []

        async def receive():
            if begun:
                await asyncio.Event().wait()
            begun.append(1)
            return {"type": "http.request", "body": b"x", "more_body": True}

        status, headers, body = await sent(guarded(shop, body_piece_s=0.05), receive)
        return (
            shop.effects,
            status,
            headers[b"content-type"],
            headers[b"connection"],
            b'"code":"BODY_TOO_SLOW"' in body,
        )

    assert run(main) == (0, 408, b"application/problem+json", b"close", True)


def test_a_body_that_never_ends_is_not_waited_for():
    async def main():
        shop = Shop()

        pieces = iter(range(50_000))  # they take longer than body_s; a broken limit takes them all

        async def receive():
            await asyncio.sleep(0)
            more = next(pieces, None) is not None
            return {"type": "http.request", "body": b"", "more_body": more}

        return shop.effects, (await sent(guarded(shop, body_s=0.05), receive))[0]

    assert run(main) == (0, 408)


def test_the_key_of_a_request_that_did_not_come_in_time_is_as_good_as_new():
    async def main():
        shop = Shop()
        app = guarded(shop, body_piece_s=0.05)

        async def receive():
            await asyncio.Event().wait()

        slow = await sent(app, receive)
        again = await ask(app)
        return slow[0], again.status, shop.effects

    assert run(main) == (408, 201, 1)


def calls_of(function, *given):
    """How many functions, of Python and of C, it calls."""
    count = 0

    def counted(frame, event, called):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        function(*given)
    finally:
        sys.setprofile(None)
    return count


def test_a_form_that_is_made_of_boundaries_is_compared_in_few_steps():
    forms = [b"--x" + b"\r\n--x" * count for count in (20_000, 400_000)]
    multipart(b"--x")  # what is remembered about its type costs some calls once

    calls = [calls_of(multipart, form) for form in forms]

    assert calls[0] == calls[1] < 100_000


def test_such_a_form_is_still_told_from_another():
    form = b"--x" + b"\r\n--x" * 20_000

    assert multipart(form) == multipart(form)
    assert multipart(form) != multipart(form + b"\r\n--x")


# ---------------------------------------------------------------- quotas

DAY_S = 86_400.0


def keys(count):
    return [f"8e03978e-40d5-43dd-bc93-{number:012}" for number in range(count)]


def limited(shop, guard=None, **quota):
    return guarded(shop, guard or Guard("memory://", cache=0), quota=Quota(per_s=DAY_S, **quota))


def test_a_tenant_over_its_quota_of_keys_is_put_off_before_anything_is_claimed():
    async def main():
        shop, guard = Shop(), Guard("memory://", cache=0)
        app = limited(shop, guard, keys=2)
        seen = [await ask(app, key=key) for key in keys(3)]
        return seen, shop.effects, sum(guard.counts().values())

    seen, effects, records = run(main)

    assert [s.status for s in seen] == [201, 201, 429]
    assert (seen[2].json["code"], seen[2].headers["content-type"]) == (
        "OVER_QUOTA",
        "application/problem+json",
    )
    assert 0 < int(seen[2].headers["retry-after"]) <= DAY_S / 2
    assert seen[2].unread == [b'{"amount":1}']
    assert (effects, records) == (2, 2)


def test_a_repeat_takes_nothing_and_is_answered_over_quota_too():
    async def main():
        shop = Shop()
        app = limited(shop, keys=2)
        return shop, [await ask(app, key=keys(3)[number]) for number in (0, 0, 0, 1, 1, 0, 2)]

    shop, seen = run(main)

    assert [(s.status, s.replayed if s.status == 201 else None) for s in seen] == [
        (201, False),
        (201, True),
        (201, True),
        (201, False),
        (201, True),
        (201, True),
        (429, None),
    ]
    assert shop.effects == 2


def test_the_quota_of_one_tenant_is_not_that_of_another():
    async def main():
        app = limited(Shop(), keys=1)
        return [
            (await ask(app, key=key, tenant=tenant)).status
            for tenant in ("alice", "bob")
            for key in keys(2)
        ]

    assert run(main) == [201, 429, 201, 429]


@pytest.mark.parametrize("announced", [True, False])
def test_a_tenant_over_its_quota_of_bytes_is_put_off(announced):
    async def main():
        shop = Shop()
        app = limited(shop, bytes=100)
        headers = {"content-length": "60"} if announced else {}
        seen = [await ask(app, b"x" * 60, key=key, headers=headers) for key in keys(2)]
        return [s.status for s in seen], seen[1].unread == [b"x" * 60], shop.effects

    assert run(main) == ([201, 429], announced, 1)


def test_what_is_kept_of_responses_counts_too():
    async def main():
        app = limited(Shop(), bytes=20)
        return [(await ask(app, b"", key=key)).status for key in keys(4)]

    assert run(main) == [201, 201, 429, 429]  # each is answered with 12 bytes


def test_what_came_to_no_claim_is_given_back():
    async def main():
        shop = Shop()
        app = limited(shop, keys=1)
        gone = await ask(app, pieces=[{"type": "http.disconnect"}], key=keys(3)[0])
        return gone.status, [(await ask(app, key=key)).status for key in keys(3)[1:]], shop.effects

    assert run(main) == (400, [201, 429], 1)


def test_a_store_that_cannot_be_asked_lets_no_key_through():
    class Away(MemoryStore):
        async def aapply(self, op):
            raise StoreUnavailable("away")

    async def main():
        shop = Shop()
        seen = await ask(limited(shop, Guard(Away(), cache=0), keys=1))
        return seen.status, seen.json["code"], shop.effects

    assert run(main) == (503, "STORE_UNAVAILABLE", 0)
