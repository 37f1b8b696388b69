"""What a gateway says itself, beside what the middleware says, and what it says it for."""

from __future__ import annotations

from http import HTTPStatus
from math import ceil

import orjson
from msgspec import Struct

from effectonce.errors import NotSent
from effectonce.http.server.responses import Response


class Unreached(NotSent):
    """Nothing was sent to the upstream."""

    def __init__(self, message: str, retry_after_s: float | None) -> None:
        super().__init__(message, retryable=False, retry_after_s=retry_after_s)
        self.retry_after_s = retry_after_s


class TooManyAtOnce(Unreached):
    """The tenant has as many requests under way as it may."""


class BodyTooLarge(Exception):
    """The body is more than may pass."""


class TooSlow(Exception):
    """The body did not come in time."""


class Gone(Exception):
    """The client left before its request was complete."""


class BrokenOff(Exception):
    """The upstream began to answer, and did not end."""


class HttpProblem(Struct, frozen=True):
    """A refusal: its status, and what happened, what is known and what to do."""

    status: int
    detail: str


PROBLEMS: dict[str, HttpProblem] = {
    "TARGET_REFUSED": HttpProblem(
        400,
        "This gateway serves one API. Ask for a path of it: no other host, no tunnel, no dots that"
        " lead elsewhere. Nothing was sent.",
    ),
    "HEADER_REFUSED": HttpProblem(
        400,
        "Connection names a header that says who asks or what, or a header is written with another"
        " sign than a hyphen and looks like one of those. Nothing was sent.",
    ),
    "TOO_MANY_AT_ONCE": HttpProblem(
        429,
        "As many of your requests are under way as may be. Nothing was sent. Repeat the request,"
        " with the same key if it has one.",
    ),
    "WRONG_HOST": HttpProblem(
        421, "This gateway does not speak for the host that the request names. Nothing was sent."
    ),
    "UPSTREAM_UNREACHED": HttpProblem(
        503,
        "The API cannot be reached just now. Nothing was sent. Repeat the request, with the same"
        " key if it has one.",
    ),
    "UPSTREAM_BROKE_OFF": HttpProblem(
        502,
        "The API broke off without an answer. The request may have been done. "
        "Repeat it only with the same key: the answer then says what is known.",
    ),
    "UPSTREAM_TIMED_OUT": HttpProblem(
        504,
        "The API did not answer in time. The request may have been done. "
        "Repeat it only with the same key: the answer then says what is known.",
    ),
}


def problem(code: str, *, retry_after_s: float | None = None) -> Response:
    """The answer, as RFC 9457 has it."""
    status, detail = PROBLEMS[code].status, PROBLEMS[code].detail
    headers = [(b"content-type", b"application/problem+json"), (b"cache-control", b"no-store")]
    if retry_after_s is not None:
        headers.append((b"retry-after", b"%d" % max(1, ceil(retry_after_s))))
    about = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    return Response(status, tuple(headers), orjson.dumps(about | {"detail": detail, "code": code}))
