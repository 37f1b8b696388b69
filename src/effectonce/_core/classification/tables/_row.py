"""What a table is made of. A row says: this signal means that; the sooner a signal is looked at,
the better it is.

Signals, best first: `code` (an error code or type that the service sent), `class` (of the
exception, over its MRO), `status`, `finish` (why a model stopped), `errno`. A *weak* row is a
fallback: a better signal further down, or further inside the error, decides where there is one.
`text` comes last: it only refines what was left open, and never makes anything certain.

Certainty is written as in the papers: N not sent, R rejected, M maybe, A acted.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from effectonce._core.classification.verdicts import Bucket, Certainty, Scope, Verdict

B = Bucket
N, R, M, A = Certainty.NOT_SENT, Certainty.REJECTED, Certainty.AMBIGUOUS, Certainty.ACTED

WHY = {
    B.RATE_LIMIT: "too many requests or tokens in a short time",
    B.QUOTA: "a quota, a budget or a spending limit is used up",
    B.OVERLOADED: "the service has too much to do",
    B.SERVER_ERROR: "the service failed",
    B.UNREACHABLE: "no connection came about",
    B.NO_ANSWER: "the request may have left, and no answer came",
    B.CONFLICT: "another client changed it at the same time",
    B.CONFLICT_IN_FLIGHT: "the same request, or the thing it changes, is being worked on",
    B.AUTH: "the credentials are not accepted, or not for this",
    B.NOT_FOUND: "what it asks for is not there",
    B.SCHEMA: "the request is not valid",
    B.CONTEXT_LENGTH: "the request is longer than the model or the service takes",
    B.CONTENT_POLICY: "the content was refused by a policy",
    B.PARSE: "the answer came and cannot be used as it is",
    B.DECLINED: "it was declined for a business reason",
    B.CONFIG: "something is set up wrongly on this side",
    B.TOOL_ERROR: "a tool reports an error for the model to read",
    B.CANCELLED: "it was cancelled while it ran",
    B.CIRCUIT_OPEN: "a circuit breaker kept it from being sent",
    B.CONTROL_FLOW: "not an error: a framework stops or asks a person this way",
    B.OK: "nothing is wrong with it",
}

# What a text may refine: all of them may name an unknown error, and some an error that is known
# in general only.
OPEN = {
    B.CONTEXT_LENGTH: (B.SCHEMA,),
    B.CONTENT_POLICY: (B.SCHEMA,),
    B.AUTH: (B.SCHEMA,),
    B.NOT_FOUND: (B.SCHEMA,),
    B.QUOTA: (B.SCHEMA, B.RATE_LIMIT),
    B.OVERLOADED: (B.SERVER_ERROR,),
    B.SCHEMA: (B.RATE_LIMIT,),
    B.CONFIG: (B.UNREACHABLE,),
}


class TableRow(Struct, frozen=True):
    signal: str  # its kind: code, class, status, finish, errno or text
    names: tuple[str, ...]
    verdict: Verdict
    weak: bool = False
    settled: bool = False  # the words of the message do not change it


class Table(Struct, frozen=True, kw_only=True):
    """What one vendor, library or protocol says when something goes wrong."""

    name: str
    checked: str  # which version the rows were checked against
    rows: tuple[TableRow, ...]
    packages: tuple[str, ...] = ()  # whose exception classes these are
    headers: tuple[str, ...] = ()  # a response with a header that begins so is theirs
    hosts: tuple[str, ...] = ()
    over_http: bool = False  # an error inside a 200 came too late to be a refusal
    only_theirs: bool = False  # its codes are no names: of another service they mean something else


def _maker(signal: str) -> Callable[..., TableRow]:
    def make(
        names: str,
        bucket: Bucket,
        certainty: Certainty = M,
        why: str = "",
        *,
        scope: Scope | None = None,
        retry: bool | None = None,
        weak: bool = False,
        after_s: float | None = None,
        settled: bool = False,
    ) -> TableRow:
        split = tuple(names.split(" | ")) if signal == "text" else tuple(names.split())
        # None: by bucket
        verdict = Verdict(bucket, certainty, why or WHY[bucket], after_s, scope, retry)  # type: ignore[arg-type]
        return TableRow(signal, split, verdict, weak, settled)

    return make


code, cls, status, finish, errno_, text = map(
    _maker, ("code", "class", "status", "finish", "errno", "text")
)
