"""What an error means, as values: its bucket, what it says about the effect, who is affected,
how long to wait.

Certainty and bucket are two questions. A time-out is worth another attempt and says nothing
about the effect; a declined card says all about the effect and is worth none.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr


class Bucket(StrEnum):
    """What kind of error it is: what to do about it follows from this."""

    RATE_LIMIT = "rate_limit"  # too fast: slow down, try again
    QUOTA = "quota"  # used up: no retry helps, a person must pay or wait
    OVERLOADED = "overloaded"  # they have too much to do: try again later
    SERVER_ERROR = "server_error"  # their fault, perhaps a passing one
    UNREACHABLE = "unreachable"  # no connection came about
    NO_ANSWER = "no_answer"  # a time-out, a reset, a 504: the request left and no answer came
    CONFLICT = "conflict"  # another client changed it meanwhile, or has the key
    # the same request is being worked on: ask again with the same key
    CONFLICT_IN_FLIGHT = "conflict_in_flight"
    AUTH = "auth"  # who we are, or what we may do
    NOT_FOUND = "not_found"
    SCHEMA = "schema"  # the request is wrong and stays wrong
    CONTEXT_LENGTH = "context_length"  # shorten it first
    CONTENT_POLICY = "content_policy"
    PARSE = "parse"  # the answer came and cannot be used
    DECLINED = "declined"  # a business no
    CONFIG = "config"  # this installation is wrong: a certificate, a URL, a setting
    TOOL_ERROR = "tool_error"  # a tool's own report to the model: replan at once
    CANCELLED = "cancelled"  # by us or by the caller
    CIRCUIT_OPEN = "circuit_open"  # a breaker kept it from being sent
    CONTROL_FLOW = "control_flow"  # not an error: a framework's way to stop, or to ask a person
    OK = "ok"  # not an error at all: a response with nothing wrong
    UNKNOWN = "unknown"


class Certainty(StrEnum):
    """What the error says about the request that raised it."""

    NOT_SENT = "not_sent"  # nothing left this process
    REJECTED = "rejected"  # the downstream answered: it did not do it
    AMBIGUOUS = "ambiguous"  # it may or may not have happened
    ACTED = "acted"  # the downstream did its part; what came back is no use


class Basis(StrEnum):
    """What a verdict about an effect rests on."""

    # the protected clients of the tool saw what left, and how it was answered
    WITNESSED = "witnessed"
    DECLARED = "declared"  # the tool says what its errors mean
    ERROR = "error"  # the error alone: what else the tool did was not seen


class Scope(StrEnum):
    """Who is affected: the unit of a breaker or a budget."""

    REQUEST = "request"
    ACCOUNT = "account"  # a key, an account, an organisation
    MODEL = "model"
    HOST = "host"
    PROCESS = "process"  # this one, or its configuration


RETRYABLE = frozenset(
    {
        Bucket.RATE_LIMIT,
        Bucket.OVERLOADED,
        Bucket.SERVER_ERROR,
        Bucket.UNREACHABLE,
        Bucket.NO_ANSWER,
        Bucket.CONFLICT,
        Bucket.CONFLICT_IN_FLIGHT,
    }
)
SCOPES = {
    Bucket.RATE_LIMIT: Scope.ACCOUNT,
    Bucket.QUOTA: Scope.ACCOUNT,
    Bucket.AUTH: Scope.ACCOUNT,
    Bucket.OVERLOADED: Scope.HOST,
    Bucket.SERVER_ERROR: Scope.HOST,
    Bucket.UNREACHABLE: Scope.HOST,
    Bucket.NO_ANSWER: Scope.HOST,
    Bucket.CIRCUIT_OPEN: Scope.HOST,
    Bucket.CONFIG: Scope.PROCESS,
    Bucket.CANCELLED: Scope.PROCESS,
}


class Verdict(Struct, frozen=True):
    """What an error means. Scope and retryability follow from the bucket, unless they are given."""

    bucket: Bucket
    certainty: Certainty
    why: str = ""
    retry_after_s: float | None = None  # how long the downstream asks to wait
    scope: Scope = None  # type: ignore[assignment]  # as the bucket says, filled in below
    retry: bool | None = None  # None: as the bucket says
    matched: str = ""  # the row of the tables, or the declaration, that decided
    basis: Basis = Basis.ERROR
    # what it says about its request, if that is more than about the effect
    of_request: Verdict | None = None

    def __post_init__(self) -> None:
        if self.scope is None:
            force_setattr(self, "scope", SCOPES.get(self.bucket, Scope.REQUEST))

    @property
    def retryable(self) -> bool:
        """Could another attempt go better? Is it *safe*? Certainty and declaration decide that."""
        if self.certainty is Certainty.ACTED:
            return False
        return self.bucket in RETRYABLE if self.retry is None else self.retry

    @property
    def final(self) -> bool:
        """Is this the final answer to this very request? An exhausted quota is not: it refills."""
        return (
            self.certainty is Certainty.REJECTED
            and not self.retryable
            and self.scope is Scope.REQUEST
        )

    @property
    def done_before(self) -> bool:
        """Refused because something was created under its key? By whom, the answer does not say."""
        return self.certainty is Certainty.ACTED and self.bucket is Bucket.CONFLICT

    def but(
        self,
        *,
        certainty: Certainty | None = None,
        retry: bool | None = None,
        why: str | None = None,
        retry_after_s: float | None = None,
        scope: Scope | None = None,
        matched: str | None = None,
        basis: Basis | None = None,
        of_request: Verdict | None = None,
    ) -> Verdict:
        """The same verdict with something else in it."""
        return Verdict(
            self.bucket,
            self.certainty if certainty is None else certainty,
            self.why if why is None else why,
            self.retry_after_s if retry_after_s is None else retry_after_s,
            self.scope if scope is None else scope,
            self.retry if retry is None else retry,
            self.matched if matched is None else matched,
            self.basis if basis is None else basis,
            of_request,
        )

    def exhausted(self, *, unsure: bool) -> Verdict:
        """The verdict once the layer that saw it gave up: the last answer, not a final one."""
        scope = Scope.HOST if self.scope is Scope.REQUEST else self.scope
        return self.but(certainty=Certainty.AMBIGUOUS if unsure else None, retry=False, scope=scope)


SURE = frozenset({Certainty.NOT_SENT, Certainty.REJECTED})  # it had no effect
ANSWER_LOST = frozenset({Bucket.NO_ANSWER, Bucket.SERVER_ERROR})


class Tried(Struct, frozen=True):
    """What a layer below knows of a request it may have repeated: an error's `effectonce_tried`."""

    verdict: Verdict  # of all attempts together, about this request
    attempts: int
    gave_up: bool  # another attempt could have gone better, and this layer has made enough

    @property
    def mark(self) -> str:
        """The same in a word or two, for the headers of a response."""
        return ", ".join(
            word
            for word, holds in (
                (GAVE_UP, self.gave_up),
                (UNSURE, self.verdict.certainty not in SURE),
            )
            if holds
        )


TRIED_HEADER, GAVE_UP, UNSURE = "x-effectonce-tried", "gave-up", "unsure"
UNKNOWN = Verdict(
    Bucket.UNKNOWN,
    Certainty.AMBIGUOUS,
    "an unknown error after the request may have left",
    matched="nothing",
)
