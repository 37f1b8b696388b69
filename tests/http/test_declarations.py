"""A middleware that is written wrongly says so when it is made, and protects nothing less than
was meant.
"""

import pytest

from effectonce import ContractViolation, Guard
from effectonce.http.server import IdempotencyMiddleware, Route
from effectonce.http.server.profiles import Profile, Trouble
from effectonce.observe import Logs


async def app(scope, receive, send):
    pytest.fail("nobody asks it")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: Route("/orders/{id:int}/notes"),
            "a segment that varies is written {name}, without a type",
        ),
        (lambda: Route("/orders/{id"), "a segment that varies is written {name}"),
        (lambda: Route("pay"), "starts with /"),
        (lambda: Route("/a*b"), "starts with /"),
        (lambda: Route(""), "starts with /"),
        *(
            (lambda method=method: Route("/pay", methods=[method]), "methods that change something")
            for method in ("GET", "HEAD", "OPTIONS", "get")
        ),
        # the letters of a word would be members that no body has
        (lambda: Route("/pay", include="amount"), "lists of members"),
        (lambda: Route("/pay", exclude="amount"), "lists of members"),
        (lambda: Route("/pay", kind="read"), "a read has no effect"),
        (lambda: Route("/payments", methods=["PSOT"]), "did you mean 'POST'?"),
        (lambda: Route("/payments", methods="POST"), r"give a list, methods=\['POST'\]"),
        (lambda: Route("/payments", required="no"), "required='no': give True or False"),
        (lambda: Route(5), "a path starts with /"),
    ],
)
def test_a_route_that_would_fit_no_request_is_refused(make, said):
    with pytest.raises(ContractViolation, match=said):
        make()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"guard": 5}, "guard=5: give a Guard"),
        ({"routes": ["/payments"]}, r"routes='/payments': give each as Route\('/payments'\)"),
        ({"routes": "/payments"}, "routes='/payments': give a list"),
        ({"headers": "x-total"}, r"headers='x-total': give a list, headers=\['x-total'\]"),
        ({"body_max": "10 MB"}, "body_max='10 MB': give a whole number"),
        ({"methods": ["PSOT"]}, "did you mean 'POST'?"),
        ({"headers": ["Set-Cookie"]}, "set-cookie cannot be stored"),
        ({"tenant": "main"}, "each other's responses"),
        ({"routes": [Route("/pay", kind="irreversible")]}, "durable"),
        ({"profile": "acp"}, "choose one of ietf, stripe_v1, stripe_v2"),
        ({"body_s": 0}, "body_"),
        ({"body_piece_s": -1}, "body_"),
        ({"body_s": "long"}, "body_"),
    ],
)
def test_a_middleware_that_is_written_wrongly_is_refused_by_name(given, said):
    with pytest.raises(ContractViolation, match=said):
        IdempotencyMiddleware(
            app, **{"guard": Guard("memory://"), "tenant": lambda scope: "ada", **given}
        )


def test_there_is_no_middleware_without_a_tenant_resolver():
    with pytest.raises(TypeError, match="tenant"):
        IdempotencyMiddleware(app, Guard("memory://"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": {}},
        {"status": dict.fromkeys(Trouble, 599)},
        {"status": dict.fromkeys(Trouble, 200)},
        {"length_min": 0},
        {"length_max": 3},
        {"wait_s": -1},
        {"retry_after_s": 0},
    ],
    ids=repr,
)
def test_a_profile_that_cannot_be_meant_is_refused(wrong):
    with pytest.raises(ContractViolation, match="profile mine"):
        Profile(name="mine", **wrong)


def test_a_level_for_an_event_that_there_is_not_is_refused():
    with pytest.raises(
        ContractViolation, match="levels names cal, which no event is called: choose among"
    ):
        Logs(levels={"cal": 20})


@pytest.mark.parametrize("method", ["PROPPATCH", "REPORT", "MOVE", "PURGE", "put"])
def test_methods_that_somebody_really_has_are_no_misspellings(method):
    assert Route("/notes", methods=[method]).methods == [method]
