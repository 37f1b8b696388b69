"""The real clients against a server that goes wrong: one key in all attempts, one effect, and
the truth about the rest.
"""

import time
from email.utils import formatdate

import pytest

from effectonce import (
    Breaker,
    Budget,
    Certainty,
    Circuit,
    CircuitOpen,
    Circuits,
    Effect,
    EffectRef,
    GaveUp,
    Guard,
    InDoubt,
    Phase,
    Retry,
    RetryBudget,
    classify,
)
from effectonce._core.guarantees import Capability, Kind, Terms
from effectonce.effect import running
from tests.http.callers import LONG, SOON, each_client, each_colour, every_client
from tests.http.server import Shop

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
TERMS = {
    "tool": "pay",
    "version": "1",
    "kind": Kind.WRITE,
    "downstream": Capability.KEY,
    "window_s": 60.0,
    "resend_s": 60.0,
}
MINE = {"Idempotency-Key": "order-17"}


class Answer:
    """A response, as an SDK hands it on."""

    def __init__(self, status, headers):
        self.status_code, self.headers = status, headers


def tried(caught):
    """What the error that came out says about the request."""
    return caught.value.effectonce_tried


# ---------------------------------------------------------------- one key, one effect


AT_ONCE = {"retry-after": "0"}
ASKS = {
    "seconds": AT_ONCE,
    "fraction": {"retry-after": "0.002"},
    "milliseconds": {"retry-after-ms": "2"},
    "date": {"retry-after": formatdate(time.time() - 60, usegmt=True)},
}


@every_client
@pytest.mark.parametrize("fault", ["reset", "lose", "cut"])
def test_what_broke_is_sent_again_under_the_same_key(shop, caller, fault):
    shop.faults = [fault]

    assert caller.guarded(shop.url, "/pay") == [200]
    assert (shop.effects, len(shop.keys), len(set(shop.keys))) == (1, 2, 1)
    assert shop.keys[0].startswith("eo_")


@every_client
@pytest.mark.cover(1)
@pytest.mark.parametrize(
    "faults",
    [
        *([(429, asks)] * 2 for asks in ASKS.values()),
        *([(503, asks)] * 2 for asks in ASKS.values()),
        ["lose", (409, AT_ONCE)],
    ],
    ids=[*(f"429 {name}" for name in ASKS), *(f"503 {name}" for name in ASKS), "still running"],
)
def test_who_is_asked_to_wait_waits_and_sends_the_same(shop, caller, faults):
    shop.faults = list(faults)

    assert caller.guarded(shop.url, "/pay") == [200]
    assert (shop.effects, len(shop.keys), len(set(shop.keys))) == (1, 3, 1)


@each_client
def test_an_answer_that_does_not_come_in_time_is_asked_for_again_under_the_same_key(shop, caller):
    shop.faults = ["hang"]

    assert caller.guarded(shop.url, "/pay", wait_s=0.3, retry=LONG) == [200]
    assert shop.effects == 1
    assert len(shop.keys) >= 2
    assert len(set(shop.keys)) == 1


@each_colour
def test_a_conflict_that_nobody_explains_is_not_repeated(shop, caller):
    shop.faults = [(409, {})]

    [(status, _)] = caller.calls(shop.url, ("POST", "/pay", MINE))

    assert (status, len(shop.requests)) == (409, 1)


@each_client
@pytest.mark.parametrize(
    "written",
    [str, lambda delay: formatdate(time.time() + delay, usegmt=True)],
    ids=["seconds", "date"],
)
def test_a_delay_that_does_not_fit_is_handed_back(shop, caller, written):
    delay = written(900)
    shop.faults = [(429, {"retry-after": delay})]

    [(status, headers)] = caller.calls(shop.url, "/pay")

    assert (status, headers["retry-after"], headers["x-effectonce-tried"]) == (
        429,
        delay,
        "gave-up",
    )
    assert len(shop.requests) == 1


@each_colour
def test_a_layer_that_gave_up_is_not_repeated_by_the_tool_around_it(shop, caller):
    shop.faults = ["lose"] * 9

    with pytest.raises(GaveUp):
        caller.guarded(shop.url, "/pay", contract={"retry": SOON})

    assert (shop.effects, len(shop.keys), len(set(shop.keys))) == (1, 3, 1)


# ---------------------------------------------------------------- no key, no second time


@each_client
def test_without_a_key_what_may_have_landed_is_not_sent_again(shop, caller):
    shop.faults = ["lose"]

    with pytest.raises(Exception) as caught:
        caller.calls(shop.url, "/pay")

    assert (shop.effects, shop.keys) == (1, [None])
    assert (tried(caught).verdict.certainty, tried(caught).attempts, tried(caught).gave_up) == (
        Certainty.AMBIGUOUS,
        1,
        False,
    )


@every_client
@pytest.mark.cover(1)
@pytest.mark.parametrize(
    ("fault", "request_", "policy", "keys"),
    [
        ((429, AT_ONCE), "/pay", {}, [None, None]),
        ("lose", ("POST", "/pay", MINE), {}, ["order-17", "order-17"]),
        *(("reset", (method, "/basket"), {}, [None, None]) for method in ("GET", "PUT", "DELETE")),
        ("reset", "/search", {"kind": "read"}, [None, None]),
    ],
    ids=["refused", "the caller's key", "GET", "PUT", "DELETE", "a read"],
)
def test_without_our_key_a_request_is_sent_again_where_that_does_no_harm(
    shop, caller, fault, request_, policy, keys
):
    shop.faults = [fault]

    [(status, _)] = caller.calls(shop.url, request_, **policy)

    assert (status, shop.keys) == (200, keys)
    assert shop.effects == (0 if request_[0] == "GET" else 1)


@each_colour
def test_a_downstream_that_honours_no_key_is_not_asked_twice(shop, caller):
    shop.faults = ["lose"]

    with pytest.raises(InDoubt):
        caller.guarded(shop.url, "/pay", contract={"downstream": "none"})

    assert (shop.effects, len(shop.requests)) == (1, 1)


@each_colour
def test_an_idempotent_tool_needs_no_key(shop, caller):
    shop.faults = ["reset"]

    idempotent = {"kind": "idempotent_write", "downstream": "none"}
    assert caller.guarded(shop.url, "/set", keys=None, contract=idempotent) == [200]
    assert shop.keys == [None, None]


# ---------------------------------------------------------------- whether it left


@each_client
def test_a_connection_that_was_refused_is_known_to_have_sent_nothing(nobody, caller):
    with pytest.raises(Exception) as caught:
        caller.calls(nobody, "/pay")

    assert (tried(caught).verdict.certainty, tried(caught).attempts, tried(caught).gave_up) == (
        Certainty.NOT_SENT,
        3,
        True,
    )


@each_colour
def test_a_tool_of_one_request_that_sent_nothing_is_not_in_doubt(nobody, caller):
    with pytest.raises(Exception) as caught:
        caller.guarded(nobody, "/pay", contract={"downstream": "none", "one_request": True})

    assert not isinstance(caught.value, InDoubt)


@each_colour
def test_a_tool_of_many_requests_is_in_doubt_though_the_last_one_sent_nothing(nobody, caller):
    with pytest.raises(InDoubt):
        caller.guarded(nobody, "/pay", contract={"downstream": "none"})


@each_colour
def test_who_could_not_connect_again_does_not_forget_what_may_have_landed(caller):
    with Shop() as shop:
        shop.faults = ["vanish"]
        with pytest.raises(Exception) as caught:
            caller.calls(shop.url, ("POST", "/pay", MINE))

        assert shop.effects == 1
    assert (tried(caught).verdict.certainty, tried(caught).attempts) == (Certainty.AMBIGUOUS, 3)
    assert classify(caught.value).certainty is Certainty.AMBIGUOUS


@each_client
def test_a_refusal_does_not_speak_for_an_attempt_that_may_have_landed(shop, caller):
    shop.faults = ["lose", (401, {})]

    [(status, headers)] = caller.calls(shop.url, ("POST", "/pay", MINE))

    assert (status, headers["x-effectonce-tried"], shop.effects) == (401, "unsure", 1)
    assert classify(Answer(401, headers)).certainty is Certainty.AMBIGUOUS


@each_colour
def test_a_refusal_at_once_is_a_refusal(shop, caller):
    shop.faults = [(401, {})]

    [(status, headers)] = caller.calls(shop.url, ("POST", "/pay", MINE))

    assert status == 401
    assert "x-effectonce-tried" not in headers


@each_colour
def test_the_last_of_many_refusals_says_that_there_were_enough(shop, caller):
    shop.faults = [(423, {})] * 3

    [(status, headers)] = caller.calls(shop.url, "/pay")

    verdict = classify(Answer(status, headers))
    assert (status, headers["x-effectonce-tried"], len(shop.requests)) == (423, "gave-up", 3)
    assert (verdict.certainty, verdict.retryable, verdict.final) == (
        Certainty.REJECTED,
        False,
        False,
    )


# ---------------------------------------------------------------- deadline, breaker, budget, turn


@each_client
def test_a_request_ends_when_its_effect_has_no_time_left(shop, caller):
    shop.faults = ["hang"] * 3

    with pytest.raises(GaveUp):
        caller.guarded(
            shop.url, "/pay", wait_s=25.0, contract={"retry": Retry(attempts=1, deadline_s=0.3)}
        )

    assert len(shop.requests) <= 1  # none, where the time was over before it left


@each_client
@pytest.mark.parametrize("wait_s", [25.0, None])
def test_a_request_ends_when_its_policy_has_no_time_left(shop, caller, wait_s):
    shop.faults = ["hang"] * 3

    with pytest.raises(Exception) as caught:
        caller.calls(
            shop.url,
            ("GET", "/basket"),
            wait_s=wait_s,
            retry=Retry(attempts=3, deadline_s=0.3, base_s=0.001),
        )

    assert tried(caught).gave_up
    assert tried(caught).verdict.certainty is Certainty.AMBIGUOUS


@each_colour
def test_without_any_time_left_nothing_is_sent(shop, caller):
    late = Effect(EffectRef("pay", "k"), 1, 1, time.monotonic() - 1, terms=Terms(**TERMS))
    token = running.set(late)
    try:
        with pytest.raises(GaveUp, match="Nothing was sent") as caught:
            caller.calls(shop.url, "/pay")
    finally:
        running.reset(token)

    assert caught.value.effectonce_verdict.certainty is Certainty.NOT_SENT
    assert shop.requests == []


@each_client
def test_a_host_that_is_down_is_left_alone_and_its_neighbour_is_not(shop, caller):
    circuits = Circuits(Breaker(consecutive=2))
    shop.faults = ["reset", "reset"]

    with pytest.raises(Exception) as caught:
        caller.calls(shop.url, ("GET", "/basket"), breaker=circuits)
    with pytest.raises(CircuitOpen):
        caller.calls(shop.url, ("GET", "/basket"), breaker=circuits)
    [(status, _)] = caller.calls(
        shop.url.replace("127.0.0.1", "localhost"), ("GET", "/basket"), breaker=circuits
    )

    assert (len(shop.requests), status) == (3, 200)
    assert [circuits[host].phase for host in ("127.0.0.1", "localhost")] == [
        Phase.OPEN,
        Phase.CLOSED,
    ]
    assert (tried(caught).gave_up, tried(caught).verdict.certainty) == (
        True,
        Certainty.AMBIGUOUS,
    ), "the first may have landed"


@each_colour
def test_one_circuit_may_stand_for_all_hosts(shop, caller):
    circuit = Circuit("shop", Breaker(consecutive=1))
    shop.faults = [(503, {})]
    caller.calls(shop.url, "/pay", breaker=circuit)

    with pytest.raises(CircuitOpen) as caught:
        caller.calls(shop.url.replace("127.0.0.1", "localhost"), "/pay", breaker=circuit)

    assert (len(shop.requests), caught.value.effectonce_verdict.certainty) == (
        1,
        Certainty.NOT_SENT,
    )


@each_colour
def test_a_budget_that_is_empty_ends_it(shop, caller):
    budget = RetryBudget("shop", capacity=14, cost=14)
    shop.faults = ["reset"] * 9

    with pytest.raises(Exception) as caught:
        caller.calls(shop.url, ("GET", "/basket"), budget=budget)

    assert (len(shop.requests), tried(caught).gave_up) == (2, True)


@each_colour
def test_retries_of_a_request_count_in_its_turn(shop, caller):
    guard = Guard("memory://")
    shop.faults = ["reset"] * 9

    with (
        guard.turn("chat", "turn-1", budget=Budget(attempts=2)),
        pytest.raises(Exception) as caught,
    ):
        caller.calls(shop.url, ("GET", "/basket"), retry=Retry(attempts=5, base_s=0.001))

    assert (len(shop.requests), tried(caught).gave_up) == (2, True)
