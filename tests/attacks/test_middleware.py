"""What a client does to an app behind the middleware: bodies that do not end, and bodies that are costly to compare."""

import asyncio
import sys

import pytest

from effectonce import ContractViolation
from tests.http.helpers import Shop, ask, guarded, run
from tests.http.test_fingerprint import multipart


async def sent(app, receive):
    """What comes back for a request whose body is what *receive* gives."""
    messages = []

    async def send(message):
        messages.append(message)

    headers = [(b"x-tenant", b"alice"), (b"idempotency-key", b'"8e03978e-40d5-43dd-bc93-6894a57f9324"')]
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/pay", "query_string": b"", "headers": headers}
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
        return shop.effects, status, headers[b"content-type"], headers[b"connection"], b'"code":"BODY_TOO_SLOW"' in body

    assert run(main) == (0, 408, b"application/problem+json", b"close", True)


def test_a_body_that_never_ends_is_not_waited_for():
    async def main():
        shop = Shop()

        async def receive():
            await asyncio.sleep(0)
            return {"type": "http.request", "body": b"", "more_body": True}

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


@pytest.mark.parametrize("limits", [{"body_s": 0}, {"body_piece_s": -1}, {"body_s": "long"}])
def test_a_time_that_allows_nothing_is_refused(limits):
    with pytest.raises(ContractViolation, match="body_"):
        guarded(Shop(), **limits)


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
