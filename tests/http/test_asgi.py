"""The middleware over raw ASGI: what is asked, what is stored, what is replayed, what leaves
when.
"""

import asyncio
import contextlib
import threading
from dataclasses import replace

import pytest

from effectonce import ContractViolation, Guard, Keyring, State, StoreUnavailable, current_effect
from effectonce._core.ops import Browse
from effectonce._runtime.step import _warn
from effectonce.http.server import Route, middleware
from effectonce.http.server.fingerprint import fingerprint_of
from effectonce.http.server.profiles import IETF, STRIPE_V1, STRIPE_V2, Profile
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock
from tests.http.helpers import KEY, Shop, a_scope, answer, ask, guarded, run, tenant_of

OTHER = "5c0f3a52-54b2-4d6e-9a0f-6f3b7b0f2e11"


def asked(app, *requests):
    """Send requests one after the other; each is the keywords of `ask`."""

    async def main():
        return [await ask(app, **request) for request in requests]

    return run(main)


@pytest.mark.parametrize(("size", "on_the_loop"), [(1 << 15, True), ((1 << 15) + 1, False)])
def test_a_long_body_is_fingerprinted_beside_the_loop(monkeypatch, size, on_the_loop):
    where = []

    def fingerprinted(*asked_for):
        where.append(threading.current_thread() is threading.main_thread())
        return fingerprint_of(*asked_for)

    monkeypatch.setattr(middleware, "fingerprint_of", fingerprinted)
    body = b'"%s"' % (b"x" * (size - 2))
    first, again = asked(guarded(Shop()), {"body": body}, {"body": body})

    assert (first.status, again.replayed, where) == (201, True, [on_the_loop] * 2)


# ---------------------------------------------------------------- replay


def test_a_repeated_request_gets_the_same_bytes_and_the_app_runs_once():
    shop = Shop()

    first, again = asked(guarded(shop), {}, {})

    assert (first.status, first.body, first.replayed) == (201, b'{"effect":1}', False)
    assert (again.status, again.body, again.replayed) == (201, b'{"effect":1}', True)
    assert shop.effects == 1


@pytest.mark.parametrize(
    "body", [b"", b"\x00\xff\xfe", "ü€\U0001f600".encode(), b"null", b"0"], ids=repr
)
def test_any_body_is_replayed_byte_for_byte(body):
    async def said(_scope, _receive, send):
        await answer(send, 200, body)

    first, again = asked(guarded(Shop(said)), {}, {})

    assert (first.body, again.body, again.replayed) == (body, body, True)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 303, 400, 402, 409])
def test_definite_answers_are_stored_whatever_their_status(status):
    shop = Shop(status)

    first, again = asked(guarded(shop), {}, {})

    assert (first.status, again.status, again.replayed, shop.effects) == (status, status, True, 1)
    assert ("content-length" in again.headers) is (status != 204)


@pytest.mark.cover(1)
@pytest.mark.parametrize("status", [401, 403, 404, 413, 422, 429])
@pytest.mark.parametrize("profile", ["ietf", "stripe_v1", "stripe_v2"])
def test_a_status_that_says_nothing_was_done_is_never_stored(status, profile):
    shop = Shop(status, 201)

    refused, done, again = asked(guarded(shop, profile=profile), {}, {}, {})

    assert [(s.status, s.replayed) for s in (refused, done, again)] == [
        (status, False),
        (201, False),
        (201, True),
    ]
    assert shop.effects == 2


def test_headers_are_replayed_if_they_are_allowed_and_cookies_never():
    async def said(_scope, _receive, send):
        await answer(
            send,
            201,
            b"{}",
            location="/pay/7",
            etag='"1"',
            set_cookie="session=alice",
            x_trace="1",
            x_mine="2",
        )

    first, again = asked(guarded(Shop(said), headers=["X-Mine"]), {}, {})

    assert first.headers["set-cookie"] == "session=alice"
    assert {
        name: again.headers.get(name)
        for name in ("location", "etag", "set-cookie", "x-trace", "x-mine")
    } == {
        "location": "/pay/7",
        "etag": '"1"',
        "set-cookie": None,
        "x-trace": None,
        "x-mine": "2",
    }


def test_the_app_gets_the_body_as_it_was_sent():
    shop = Shop()

    asked(guarded(shop, memory_max=10), {"pieces": [b"abc", b"", b"d" * 200_000, b"e"]})

    assert shop.bodies == [b"abc" + b"d" * 200_000 + b"e"]


# ---------------------------------------------------------------- which requests


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE", "PUT"])
def test_other_methods_go_to_the_app_untouched(method):
    shop = Shop()

    asked(guarded(shop), {"method": method}, {"method": method, "key": None})

    assert shop.effects == 2


def test_what_is_not_http_goes_to_the_app_untouched():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    run(lambda: guarded(app)({"type": "lifespan"}, None, None))

    assert seen == ["lifespan"]


def test_only_configured_routes_are_effects():
    shop = Shop()
    app = guarded(
        shop,
        routes=[Route("/pay/{id}/refund"), Route("/admin/*", methods=["DELETE"], required=False)],
    )

    seen = asked(
        app,
        {"path": "/pay/7/refund", "key": None},
        {"path": "/pay/7/8/refund", "key": None},
        {"path": "/other", "key": None},
        {"path": "/admin/a/b", "method": "DELETE", "key": None},
        {"path": "/admin/a/b", "method": "DELETE"},
        {"path": "/admin/a/b", "method": "DELETE"},
    )

    assert [s.status for s in seen] == [400, 201, 201, 201, 201, 201]
    assert seen[-1].replayed
    assert shop.effects == 4


def test_an_optional_key_may_be_absent_and_then_nothing_is_recorded():
    shop, guard = Shop(), Guard(MemoryStore(), cache=0)

    seen = asked(guarded(shop, guard, profile="stripe_v1"), {"key": None}, {"key": None})

    assert [s.status for s in seen] == [201, 201]
    assert sum(guard.counts().values()) == 0


# ---------------------------------------------------------------- whose


def test_two_tenants_with_one_key_never_see_each_other():
    shop = Shop()

    alice, bob, alice_again, bob_again = asked(
        guarded(shop), {}, {"tenant": "bob"}, {}, {"tenant": "bob"}
    )

    assert [s.body for s in (alice, bob, alice_again, bob_again)] == [
        b'{"effect":1}',
        b'{"effect":2}',
    ] * 2
    assert [s.replayed for s in (alice, bob)] == [False, False]


@pytest.mark.parametrize("step", [201, 500, 404, RuntimeError("a bug")], ids=repr)
def test_a_key_of_somebody_else_is_answered_as_one_that_nobody_has(step):
    async def fixed(_scope, _receive, send):
        await answer(send, 200, b"new")

    app = guarded(Shop(step, fixed, fixed))

    _, unknown, theirs = asked(
        app, {"body": b"other"}, {"tenant": "bob", "key": OTHER}, {"tenant": "bob"}
    )

    assert unknown.messages == theirs.messages
    assert theirs.body == b"new"


def test_the_tenant_is_asked_again_before_a_replay():
    shop, allowed = Shop(), [True]
    app = guarded(shop, tenant=lambda scope: "alice" if allowed[0] else None)

    asked(app, {})
    allowed[0] = False
    (refused,) = asked(app, {})

    assert (refused.status, refused.json["code"]) == (401, "NOT_AUTHENTICATED")
    assert b"effect" not in refused.body.replace(b"NOT_", b"")


def test_whoever_may_not_any_more_is_refused_before_a_replay():
    shop, may = Shop(), [True]

    def tenant(scope):
        if not may[0]:
            raise PermissionError("suspended, for reasons that are nobody's business")
        return tenant_of(scope)

    app = guarded(shop, tenant=tenant)
    asked(app, {})
    may[0] = False
    (refused,) = asked(app, {})

    assert (refused.status, refused.json["code"]) == (403, "NOT_ALLOWED")
    assert b"suspended" not in refused.body


def test_a_tenant_resolver_may_be_async():
    async def tenant(scope):
        await asyncio.sleep(0)
        return tenant_of(scope)

    (seen,) = asked(guarded(Shop(), tenant=tenant), {})

    assert seen.status == 201


def test_a_customer_who_is_known_by_an_address_is_served_and_one_warning_is_logged(caplog):
    _warn.cache_clear()
    shop = Shop()
    addresses = ["ada@example.test", "ada@example.test", "grace@example.test"]

    seen = asked(guarded(shop, tenant=lambda scope: addresses.pop(0)), {}, {}, {})

    assert ([answer.status for answer in seen], shop.effects) == ([201] * 3, 2)
    (warning,) = caplog.messages
    assert warning.startswith(
        "tenant contains a personal identifier (an e-mail address). It is taken as it is"
    )
    assert "example.test" not in warning


def test_a_tenant_without_a_name_is_the_servers_mistake_and_nothing_runs():
    shop = Shop()

    (seen,) = asked(guarded(shop, tenant=lambda scope: ""), {})

    assert isinstance(seen.raised, ContractViolation)
    assert shop.effects == 0


def test_two_apps_with_names_of_their_own_share_a_guard_and_no_keys():
    guard, one, two = Guard("memory://", cache=0), Shop(), Shop()

    asked(guarded(one, guard, name="orders"), {})
    asked(guarded(two, guard, name="mail"), {})

    assert (one.effects, two.effects) == (1, 1)


def test_a_middleware_inside_another_one_leaves_the_request_to_it():
    guard, shop = Guard("memory://", cache=0), Shop()

    first, again = asked(guarded(guarded(shop, guard), guard), {}, {})

    assert [(s.status, s.replayed) for s in (first, again)] == [(201, False), (201, True)]
    assert shop.effects == 1


# ---------------------------------------------------------------- the key


def test_a_missing_key_is_told_and_the_body_is_not_read():
    shop = Shop()

    (seen,) = asked(guarded(shop, docs="https://example.com/retries"), {"key": None})

    assert (seen.status, shop.effects, len(seen.unread)) == (400, 0, 1)
    assert seen.headers["content-type"] == "application/problem+json"
    assert seen.headers["link"] == '<https://example.com/retries>; rel="describedby"'
    assert seen.json["type"] == "https://example.com/retries#key-missing"
    assert seen.json["title"] == "Idempotency-Key is missing"


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (b"8e03978e-40d5-43dd-bc93-6894a57f9324", "quoted string"),
        (b'"short"', "5 characters"),
        (b'"' + b"ab" * 128 + b'"', "256 characters"),
        (b'"aaaaaaaaaaaaaaaaaaaaaaaa"', "easy to guess"),
        (b'"\xc3\xbcberweisung-123456789"', "not ASCII"),
        (b'"' + b"a" * 5000, "bytes"),
    ],
)
def test_a_key_that_cannot_be_used_is_refused_with_the_reason(key, said):
    shop = Shop()

    (seen,) = asked(guarded(shop), {"key": key})

    assert (seen.status, seen.json["code"], shop.effects) == (400, "KEY_MALFORMED", 0)
    assert said in seen.json["detail"]


# ---------------------------------------------------------------- mismatch


@pytest.mark.parametrize(
    "other",
    [
        {"body": b'{"amount":2}'},
        {"query": b"dry_run=1"},
        {"headers": {"content-type": "text/plain"}},
        {"headers": {"content-encoding": "gzip"}},
    ],
    ids=repr,
)
def test_the_same_key_with_another_request_is_a_conflict(other):
    shop = Shop()

    _, seen, again = asked(guarded(shop), {}, other, {})

    assert (seen.status, seen.json["code"], shop.effects) == (422, "KEY_CONFLICT", 1)
    assert seen.json["title"] == "Unprocessable Content"  # whatever this Python calls it
    assert b'"effect"' not in seen.body
    assert again.replayed


def test_another_path_or_method_is_another_scope():
    shop = Shop()

    seen = asked(guarded(shop), {}, {"path": "/refund"}, {"method": "PATCH"})

    assert [(s.status, s.replayed) for s in seen] == [(201, False)] * 3


def test_another_resource_of_the_same_route_is_a_conflict():
    seen = asked(
        guarded(Shop(), routes=[Route("/pay/{id}")]), {"path": "/pay/1"}, {"path": "/pay/2"}
    )

    assert [s.status for s in seen] == [201, 422]


def test_chosen_members_decide_what_must_match():
    shop = Shop()
    app = guarded(shop, routes=[Route("/pay", exclude=["sent_at", "meta.trace"])])

    seen = asked(
        app,
        {"body": b'{"amount":1,"sent_at":1,"meta":{"trace":1,"user":1}}'},
        {"body": b'{"sent_at":2, "meta":{"user":1,"trace":2},"amount":1}'},
        {"body": b'{"amount":1,"sent_at":1,"meta":{"trace":1,"user":2}}'},
    )

    assert [s.status for s in seen] == [201, 201, 422]


def held(body=b"{}"):
    """A handler, and the event that lets it answer."""
    go = asyncio.Event()

    async def slow(_scope, _receive, send):
        await go.wait()
        await answer(send, 201, body)

    return slow, go


def test_a_conflict_is_told_while_the_first_is_in_flight_and_after_waiting():
    async def main():
        slow, go = held()
        shop = Shop(slow)
        app = guarded(shop, profile=replace(IETF, wait_s=30))
        first = asyncio.create_task(ask(app))
        await shop.started.wait()
        other = await ask(app, b'{"amount":2}')
        waiting = asyncio.create_task(ask(app))
        go.set()
        return other, await first, await waiting

    other, first, waited = run(main)

    assert [s.status for s in (other, first, waited)] == [422, 201, 201]
    assert waited.replayed


# ---------------------------------------------------------------- in flight


def in_flight(profile=IETF, **settings):
    """The answer to a request while the same one is being worked on, and to both afterwards."""

    async def main():
        slow, go = held()
        shop = Shop(slow)
        app = guarded(shop, profile=profile, **settings)
        first = asyncio.create_task(ask(app))
        await shop.started.wait()
        meanwhile = await ask(app)
        go.set()
        return await first, meanwhile, await ask(app), shop.effects

    return run(main)


def test_a_request_that_is_in_flight_is_told_so_and_when_to_come_again():
    first, meanwhile, after, effects = in_flight()

    assert (meanwhile.status, meanwhile.headers["retry-after"], meanwhile.json["code"]) == (
        409,
        "1",
        "RETRY_IN_FLIGHT",
    )
    assert (first.status, after.status, after.replayed, effects) == (201, 201, True, 1)


def test_stripe_says_it_in_its_own_words():
    _, meanwhile, _, _ = in_flight(STRIPE_V1)

    assert meanwhile.status == 409
    assert meanwhile.json["error"]["code"] == "idempotency_key_in_use"


def test_hundreds_of_duplicates_at_once_are_one_effect():
    async def main():
        shop = Shop()
        app = guarded(shop, profile=replace(IETF, wait_s=30))
        return shop, await asyncio.gather(*(ask(app) for _ in range(300)))

    shop, seen = run(main)

    assert shop.effects == 1
    assert {(s.status, s.body) for s in seen} == {(201, b'{"effect":1}')}
    assert sum(s.replayed for s in seen) == 299


# ---------------------------------------------------------------- errors after the effect


@pytest.mark.parametrize(
    "step", [500, 503, RuntimeError("a bug after the effect"), ConnectionResetError()], ids=repr
)
def test_ietf_what_may_have_been_done_is_in_doubt_and_not_done_again(step):
    shop, guard = Shop(step), Guard(MemoryStore(), cache=0)

    first, again = asked(guarded(shop, guard), {}, {})

    assert first.raised is step if isinstance(step, Exception) else first.status == step
    assert (again.status, again.json["code"], shop.effects) == (500, "OUTCOME_UNKNOWN", 1)
    assert "retry-after" not in again.headers
    assert len(guard.in_doubt()) == 1


@pytest.mark.parametrize("step", [500, 503], ids=repr)
def test_stripe_v1_stores_and_replays_a_server_error(step):
    shop = Shop(step)

    first, again = asked(guarded(shop, profile="stripe_v1"), {}, {})

    assert [(s.status, s.body) for s in (first, again)] == [(step, b'{"effect":1}')] * 2
    assert (again.replayed, shop.effects) == (True, 1)


def test_stripe_v1_stores_an_exception_as_the_500_that_it_is():
    error = RuntimeError("a bug after the effect")
    shop = Shop(error)

    first, again = asked(guarded(shop, profile="stripe_v1"), {}, {})

    assert (first.status, first.body, first.complete, first.raised) == (
        500,
        b"Internal Server Error",
        True,
        error,
    )
    assert (again.status, again.body, again.replayed, shop.effects) == (
        500,
        b"Internal Server Error",
        True,
        1,
    )


@pytest.mark.parametrize("step", [500, RuntimeError("a bug after the effect")], ids=repr)
def test_stripe_v2_drives_failed_work_to_its_end_under_one_key(step):
    keys = []

    async def second(_scope, _receive, send):
        keys.append(current_effect().downstream_key)
        await answer(send, 201, b"done")

    async def first(scope, receive, send):
        keys.append(current_effect().downstream_key)
        if isinstance(step, Exception):
            raise step
        await answer(send, step, b"not yet")

    shop = Shop(first, second)

    _, done, again = asked(guarded(shop, profile="stripe_v2"), {}, {}, {})

    assert [(s.status, s.body, s.replayed) for s in (done, again)] == [
        (201, b"done", False),
        (201, b"done", True),
    ]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_a_refusal_does_not_speak_for_a_run_before_it_that_may_have_done_something():
    """A 422 says that nothing was done, and a client may believe it."""
    failed, refused = asked(guarded(Shop(500, 422), profile="stripe_v2"), {}, {})
    (at_once,) = asked(guarded(Shop(422), profile="stripe_v2"), {})

    assert [(s.status, s.headers.get("x-effectonce-tried")) for s in (failed, refused)] == [
        (500, "unsure"),
        (422, "unsure"),
    ]
    assert "x-effectonce-tried" not in at_once.headers


def test_a_handler_that_is_run_again_by_its_profile_may_fail_before_it_reads_its_key():
    runs = []

    async def app(scope, receive, send):
        runs.append(await receive())
        await answer(send, 500 if len(runs) == 1 else 201, b"{}")

    first, again = asked(guarded(app, profile="stripe_v2"), {}, {})

    assert (first.status, again.status) == (500, 201)


def test_an_app_that_never_completes_its_response_is_in_doubt():
    async def silent(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    first, again = asked(guarded(Shop(silent)), {}, {})

    assert isinstance(first.raised, RuntimeError)
    assert again.json["code"] == "OUTCOME_UNKNOWN"


def test_a_body_before_its_start_is_an_error_of_the_app():
    async def confused(_scope, _receive, send):
        await send({"type": "http.response.body", "body": b"x"})

    first, _ = asked(guarded(Shop(confused)), {}, {})

    assert "before it started" in str(first.raised)


def test_a_person_settles_a_doubt_with_a_response():
    shop, guard = Shop(500), Guard(MemoryStore(), cache=0)
    app = guarded(shop, guard)
    asked(app, {})
    (doubt,) = guard.in_doubt()

    response = {
        "status": 201,
        "headers": [["content-type", "application/json"]],
        "body": '{"receipt":7}',
    }
    guard.confirm(doubt.request.key, result=response, by="ann", reason="the bank has it")
    (again,) = asked(app, {})

    assert (again.status, again.body, again.replayed, shop.effects) == (
        201,
        b'{"receipt":7}',
        True,
        1,
    )


@pytest.mark.parametrize(
    "result", ["receipt 7", {"status": 99}, {"status": 201, "base64": "!"}, None], ids=repr
)
def test_a_settled_result_that_is_no_response_is_told_as_done(result):
    guard = Guard(MemoryStore(), cache=0)
    app = guarded(Shop(500), guard)
    asked(app, {})
    guard.confirm(
        guard.in_doubt()[0].request.key, result=result, by="ann", reason="the bank has it"
    )

    (again,) = asked(app, {})

    assert (again.status, again.json["code"]) == (410, "RESULT_UNAVAILABLE")


def test_a_refuted_request_needs_a_new_key():
    guard = Guard(MemoryStore(), cache=0)
    app = guarded(Shop(500), guard)
    asked(app, {})
    guard.refute(guard.in_doubt()[0].request.key, by="ann", reason="the bank never saw it")

    (again,) = asked(app, {})

    assert (again.status, again.json["code"]) == (410, "REPLAYED_FAILURE")


# ---------------------------------------------------------------- windows and owners


def test_an_expired_key_is_told_and_not_run_again():
    clock, shop = FakeClock(), Shop()
    guard = Guard(MemoryStore(clock=clock), cache=0)
    app = guarded(shop, guard, profile="stripe_v1")

    asked(app, {})
    clock.advance(86_401)
    (late,) = asked(app, {})
    guard.sweep()
    (buried,) = asked(app, {})

    assert [(s.status, s.json["error"]["code"]) for s in (late, buried)] == [
        (410, "key_expired")
    ] * 2
    assert shop.effects == 1


def overtaken(profile, respond):
    """A request outlives its lease; another takes over and completes; then the first one ends."""

    async def main():
        clock, go = FakeClock(), asyncio.Event()

        async def slow(_scope, _receive, send):
            await respond(go, send)

        shop = Shop(slow)
        app = guarded(shop, Guard(MemoryStore(clock=clock), cache=0), profile=profile)
        first = asyncio.create_task(ask(app))
        await shop.started.wait()
        clock.advance(31)
        second = await ask(app)
        go.set()
        return await first, second, await ask(app)

    return run(main)


def test_a_zombie_gets_the_recorded_response_and_not_its_own():
    async def late(go, send):
        await go.wait()
        await answer(send, 201, b"the zombie's")

    first, second, third = overtaken(STRIPE_V2, late)

    assert {s.body for s in (first, second, third)} == {b'{"effect":2}'}
    assert (first.replayed, first.complete) == (True, True)


def test_a_zombie_that_has_begun_to_stream_is_cut_off():
    async def streaming(go, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"the zom", "more_body": True})
        await go.wait()
        await send({"type": "http.response.body", "body": b"bie's"})

    first, second, third = overtaken(STRIPE_V2, streaming)

    assert (first.body, first.complete, type(first.raised).__name__) == (
        b"the zom",
        False,
        "LeaseLost",
    )
    assert second.body == third.body == b'{"effect":2}'


def test_a_zombie_whose_successor_is_not_done_is_told_to_come_again():
    async def main():
        clock = FakeClock()
        slow, go = held(b"the zombie's")
        slower, last = held(b"its successor's")

        async def successor(scope, receive, send):
            go.set()
            await slower(scope, receive, send)

        shop = Shop(slow, successor)
        app = guarded(shop, Guard(MemoryStore(clock=clock), cache=0), profile=STRIPE_V2)
        first = asyncio.create_task(ask(app))
        await shop.started.wait()
        clock.advance(31)
        second = asyncio.create_task(ask(app))
        told = await first
        last.set()
        return told, await second

    told, second = run(main)

    assert (told.status, told.headers["retry-after"]) == (409, "1")
    assert second.body == b"its successor's"


@pytest.mark.parametrize(
    ("profile", "status", "effects"),
    [(IETF, 500, 1), (STRIPE_V2, 201, 2)],
    ids=["ietf", "stripe_v2"],
)
def test_an_owner_that_vanished_leaves_a_doubt_or_a_request_to_run_again(profile, status, effects):
    async def main():
        clock, shop = FakeClock(), Shop(hang)
        app = guarded(shop, Guard(MemoryStore(clock=clock), cache=0), profile=profile)
        vanished = asyncio.create_task(ask(app))
        await shop.started.wait()
        clock.advance(31)
        seen = await ask(app)
        vanished.cancel()
        await asyncio.gather(vanished, return_exceptions=True)
        return seen.status, shop.effects

    assert run(main) == (status, effects)


async def hang(_scope, _receive, _send):
    await asyncio.Event().wait()


# ---------------------------------------------------------------- clients that leave


def test_a_client_that_leaves_while_it_uploads_claims_nothing():
    shop, guard = Shop(), Guard(MemoryStore(), cache=0)

    (seen,) = asked(
        guarded(shop, guard),
        {
            "pieces": [
                {"type": "http.request", "body": b"{", "more_body": True},
                {"type": "http.disconnect"},
            ]
        },
    )

    assert (seen.status, seen.body, seen.raised) == (400, b"", None)
    assert (shop.effects, sum(guard.counts().values())) == (0, 0)


def test_a_server_that_raises_for_a_client_that_left_while_it_uploaded_is_not_disturbed():
    async def left(_message):
        raise OSError("gone")

    (seen,) = asked(guarded(Shop()), {"pieces": [{"type": "http.disconnect"}], "on_send": left})

    assert (seen.messages, seen.raised) == ([], None)


def test_a_client_that_leaves_before_the_answer_gets_it_when_it_comes_again():
    async def main():
        shop = Shop()
        app = guarded(shop)

        async def left(message):
            raise OSError("gone")

        return shop, await ask(app, on_send=left), await ask(app)

    shop, first, again = run(main)

    assert (first.messages, first.raised) == ([], None)
    assert (again.body, again.replayed, shop.effects) == (b'{"effect":1}', True, 1)


def test_a_client_that_leaves_in_the_middle_of_a_stream_gets_all_of_it_when_it_comes_again():
    async def main():
        shop, count = Shop(stream), [0]
        app = guarded(shop)

        async def left(message):
            count[0] += 1
            if count[0] > 2:
                raise OSError("gone")

        return shop, await ask(app, on_send=left), await ask(app)

    shop, first, again = run(main)

    assert (first.body, first.complete) == (b"one ", False)
    assert (again.body, again.replayed, shop.effects) == (b"one two three", True, 1)


def test_the_app_is_not_told_that_the_client_has_left_before_its_response_is_out():
    async def main():
        heard = []

        async def listening(_scope, receive, send):
            listener = asyncio.create_task(receive())
            await asyncio.sleep(0)
            heard.append(listener.done())
            await answer(send, 201, b"{}")
            heard.append((await listener)["type"])

        seen = await ask(guarded(Shop(listening)), on_send=None)
        return heard, seen

    heard, seen = run(main)

    assert heard == [False, "http.disconnect"]
    assert seen.status == 201


def test_a_cancelled_request_stops_the_app_and_is_in_doubt():
    async def main():
        guard, ended = Guard(MemoryStore(), cache=0), []

        async def endless(_scope, _receive, _send):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        shop = Shop(endless)
        task = asyncio.create_task(ask(guarded(shop, guard)))
        await shop.started.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return ended, guard.counts()

    ended, counts = run(main)

    assert ended == [True]
    assert counts[State.IN_DOUBT] == 1


# ---------------------------------------------------------------- what leaves when


async def stream(_scope, _receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for piece in (b"one ", b"two "):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"three"})


def states_when_told(app_step, *, version="1.1", **settings):
    """The state of the record when each message reached the client."""

    async def main():
        store = MemoryStore()
        guard, told = Guard(store, cache=0), []

        async def look(message):
            counts = {state: count for state, count in guard.counts().items() if count}
            told.append((message.get("body", "start"), next(iter(counts), None)))

        app = guarded(Shop(app_step), guard, **settings)
        seen = await ask(app, on_send=look, version=version)
        return told, seen

    return run(main)


def test_no_byte_of_an_ordinary_response_leaves_before_it_is_recorded():
    told, _ = states_when_told(201)

    assert told == [("start", State.COMPLETED), (b'{"effect":1}', State.COMPLETED)]


def test_a_stream_begins_early_and_ends_when_it_is_recorded():
    told, seen = states_when_told(stream)

    assert told == [
        ("start", State.DISPATCHED),
        (b"one ", State.DISPATCHED),
        (b"two ", State.DISPATCHED),
        (b"three", State.COMPLETED),
    ]
    assert seen.complete


def test_a_stream_to_a_client_that_cannot_tell_its_end_leaves_when_it_is_recorded():
    """HTTP/1.0 has no chunks: a stream that was cut off looks like one that ended. Some proxies
    speak it by default.
    """
    told, seen = states_when_told(stream, version="1.0")

    assert {state for _, state in told} == {State.COMPLETED}
    assert (seen.body, seen.complete) == (b"one two three", True)


def test_a_response_that_says_how_long_it_is_is_not_complete_before_it_is_recorded():
    async def wrapped(_scope, _receive, send):
        await send(
            {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8")]}
        )
        await send({"type": "http.response.body", "body": b"one ", "more_body": True})
        await send({"type": "http.response.body", "body": b"two ", "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    told, seen = states_when_told(wrapped)

    assert told == [
        ("start", State.DISPATCHED),
        (b"one ", State.DISPATCHED),
        (b"two ", State.COMPLETED),
    ]
    assert seen.body == b"one two "


def test_a_stream_that_breaks_is_in_doubt_and_the_client_sees_that_it_broke():
    async def broken(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one ", "more_body": True})
        raise RuntimeError("broken")

    for profile, status in (("ietf", 500), ("stripe_v1", 500)):
        first, again = asked(guarded(Shop(broken), profile=profile), {}, {})
        assert (first.body, first.complete, str(first.raised)) == (b"one ", False, "broken")
        assert again.status == status


def test_background_work_starts_after_the_response_and_is_waited_for():
    async def main():
        order = []

        async def said(_scope, _receive, send):
            await answer(send, 201, b"{}")
            order.append("background")

        async def told(message):
            order.append(message["type"])

        await ask(guarded(Shop(said)), on_send=told)
        return order

    assert run(main) == ["http.response.start", "http.response.body", "background"]


def test_background_work_that_fails_changes_nothing_about_the_response():
    async def said(_scope, _receive, send):
        await answer(send, 201, b"{}")
        raise RuntimeError("the mail server is away")

    first, again = asked(guarded(Shop(said)), {}, {})

    assert (first.status, first.complete, str(first.raised)) == (
        201,
        True,
        "the mail server is away",
    )
    assert (again.status, again.replayed) == (201, True)


def test_an_app_that_does_not_wait_for_the_end_of_its_response_is_recorded_all_the_same():
    async def impatient(_scope, _receive, send):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await answer(send, 201, b"{}")

    first, again = asked(guarded(Shop(impatient)), {}, {})

    assert [(s.status, s.complete, s.raised) for s in (first, again)] == [(201, True, None)] * 2
    assert again.replayed


def test_a_response_that_is_too_large_to_keep_reaches_the_first_client_and_is_never_made_again():
    async def large(_scope, _receive, send):
        await answer(send, 200, b"x" * 300_000)

    shop = Shop(large)

    first, again = asked(guarded(shop, response_max=100_000, memory_max=1000), {}, {})

    assert (len(first.body), first.complete) == (300_000, True)
    assert (again.status, again.json["code"], shop.effects) == (410, "RESULT_UNAVAILABLE", 1)


def test_messages_that_were_not_offered_are_not_passed_on():
    async def trailing(_scope, _receive, send):
        await answer(send, 200, b"{}")
        await send({"type": "http.response.trailers", "headers": []})
        await send({"type": "http.response.body", "body": b"more"})

    (seen,) = asked(guarded(Shop(trailing)), {})

    assert [m["type"] for m in seen.messages] == ["http.response.start", "http.response.body"]


def test_the_app_is_not_offered_what_would_go_past_the_record():
    offered = {}

    async def looking(scope, _receive, send):
        offered.update(extensions=scope["extensions"], headers=dict(scope["headers"]))
        await answer(send, 200, b"{}")

    async def main():
        app, scope = guarded(Shop(looking)), a_scope(headers={"accept-encoding": "gzip"})
        scope["extensions"] = {"http.response.pathsend": {}, "tls": {}}
        messages = [{"type": "http.request", "body": b""}]

        async def receive():
            return messages.pop()

        async def send(message):
            pass

        await app(scope, receive, send)

    run(main)

    assert offered["extensions"] == {"tls": {}}
    assert b"accept-encoding" not in offered["headers"]


# ---------------------------------------------------------------- large requests


def test_a_body_that_is_announced_as_too_large_is_not_read():
    shop = Shop()

    (seen,) = asked(
        guarded(shop, body_max=10), {"headers": {"content-length": "11"}, "body": b"x" * 11}
    )

    assert (seen.status, len(seen.unread), shop.effects) == (413, 1, 0)


def test_a_body_that_grows_too_large_is_not_read_further():
    shop, guard = Shop(), Guard(MemoryStore(), cache=0)

    (seen,) = asked(
        guarded(shop, guard, body_max=10), {"pieces": [b"12345", b"67890", b"1", b"2", b"3"]}
    )

    assert (seen.status, seen.unread, shop.effects) == (413, [b"2", b"3"], 0)
    assert sum(guard.counts().values()) == 0


def test_a_body_of_exactly_the_limit_is_taken():
    (seen,) = asked(
        guarded(Shop(), body_max=10, memory_max=4),
        {"body": b"x" * 10, "headers": {"content-length": "10"}},
    )

    assert seen.status == 201


# ---------------------------------------------------------------- the store


def test_without_a_store_nothing_runs():
    class Away(MemoryStore):
        async def aapply(self, op):
            raise StoreUnavailable("away")

    shop = Shop()

    (seen,) = asked(guarded(shop, Guard(Away(), cache=0)), {})

    assert (seen.status, seen.headers["retry-after"], shop.effects) == (503, "1", 0)


def test_the_record_names_the_request_and_neither_key_nor_body():
    guard = Guard(MemoryStore(), cache=0)
    asked(guarded(Shop(500), guard), {"body": b'{"card":"4242424242424242"}'})

    (record,) = guard.in_doubt()

    assert (record.request.scope, record.request.tenant) == ("POST /pay", "alice")
    assert record.request.arguments == b'v1 ok {"method":"POST","path":"/pay"}'
    assert KEY not in repr(record)
    assert "4242" not in repr(record)


def test_a_stored_response_is_text_that_a_person_can_read():
    store = MemoryStore()
    asked(guarded(Shop(), Guard(store, cache=0)), {})

    (record,) = store.apply(Browse(State.COMPLETED))

    assert (
        record.outcome == b"v1 ok"
        b' {"status":201,"headers":[["content-type","application/json"]],"body":"{\\"effect\\":1}"}'
    )


def test_with_a_keyring_nobody_who_reads_the_store_can_read_a_response():
    store, shop = MemoryStore(), Shop()
    guard = Guard(store, keyring=Keyring({"2026-11": b"n" * 32}), secret=b"s" * 32, cache=0)

    first, again = asked(guarded(shop, guard), {}, {})
    (record,) = store.apply(Browse(State.COMPLETED))

    assert b"effect" not in record.outcome
    assert (again.body, again.replayed) == (first.body, True)


# ---------------------------------------------------------------- profiles


def test_a_profile_is_data():
    teapot = Profile(
        name="mine", status={**IETF.status, **{t: 418 for t in IETF.status if t == "KEY_CONFLICT"}}
    )

    _, seen = asked(guarded(Shop(), profile=teapot), {}, {"body": b"2"})

    assert seen.status == 418
