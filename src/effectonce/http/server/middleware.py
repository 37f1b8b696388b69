"""An API that is safe to retry: `Idempotency-Key` for any ASGI app.

A request with a key is an effect, and the app is its tool: claimed, run, recorded and replayed
by the same engine and in the same store as any other. What is asked, in this order, and what the
answer may already cost:

    is this an effect?      method and route; everything else goes to the app untouched
    whose is it?            the tenant resolver, on every request: a replay is authorised like a
                            first request
    under which key?        400 if it is missing or malformed; nothing was read
    is it too much?         429 if the key is new and the tenant is over its quota; without a quota
                            nothing is asked
    what does it ask for?   the body is read to its end, within its limit; nothing is claimed, so a
                            slow upload holds up no other request
    run it, once            see `recorder.py` for what leaves when
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NoReturn, assert_never

from msgspec import Struct

from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import (
    Done,
    Ending,
    Exhausted,
    Fenced,
    Fresh,
    Lost,
    NothingSent,
    OutOfPatience,
    OverLimit,
    RecordTaken,
    Rejection,
    Replay,
    Undetermined,
    Unmet,
)
from effectonce._core.guarantees import Capability
from effectonce._core.keys import ByName
from effectonce._core.ops import (
    Busy,
    Doubtful,
    Early,
    Find,
    KeyExpired,
    Latched,
    Mismatch,
    Unapproved,
    Unavailable,
)
from effectonce._core.record import Request
from effectonce._runtime.performers import Prepared
from effectonce._runtime.step import flagged, named
from effectonce._tools.identity import Identity
from effectonce._tools.tool import GuardedTool
from effectonce._validate import of_type, seconds, several, whole
from effectonce.errors import ContractViolation, LeaseLost, StoreUnavailable
from effectonce.guard import Guard
from effectonce.http.server.fingerprint import Fields, ParsedRequest, fingerprint_of
from effectonce.http.server.key_header import Malformed, guessable, key_of
from effectonce.http.server.problems import BodyTooLarge, Gone, TooSlow
from effectonce.http.server.profiles import IETF, Profile, Trouble, profile_of
from effectonce.http.server.quota import Meter, Quota, Spending
from effectonce.http.server.recorder import SEEN, Keeping, ResponseRecorder, Unstored
from effectonce.http.server.request import (
    RequestHeaders,
    asked_path,
    exact_path,
    read_headers,
    route_of,
)
from effectonce.http.server.responses import (
    App,
    Receive,
    Response,
    Scope,
    Send,
    kept_headers,
    last,
    refusal,
    replay,
)
from effectonce.http.server.routes import METHODS, Route
from effectonce.http.server.spooled_body import BODY_PIECE_S, BODY_S, BodyLimits, Spooled, read_body
from effectonce.policy import Contract, Downstream, Retry, kind_of

__all__ = ["IdempotencyMiddleware", "Quota", "Route"]

TENANTS_MAX = 1024  # whose names have been looked at, and are remembered
MEBIBYTE = 1 << 20
# a body up to this size is fingerprinted on the loop; a longer one would hold up the others
AT_ONCE_MAX = 1 << 15
# to a client that is gone: a layer outside would take no response at all for a mistake of ours
UNHEARD = Response(400, (), b"")
Tenant = Callable[[Scope], "str | Awaitable[str | None] | None"]


class _Refused(Exception):  # answered at once, by us
    def __init__(self, trouble: Trouble, detail: str = "", *, retry_after_s: float = 0.0) -> None:
        self.trouble, self.detail, self.retry_after_s = trouble, detail, retry_after_s


class _Served(Struct, frozen=True):
    """A route, ready to be matched."""

    route: Route
    pattern: re.Pattern[str]
    methods: frozenset[str]
    required: bool
    fields: Fields
    tool: GuardedTool
    anywhere: bool  # the path of a request is part of its key
    in_transaction: bool


async def _run(exchange: ResponseRecorder) -> dict[str, Any]:
    return await exchange.run()


class IdempotencyMiddleware:
    """Answer a request that is repeated under its `Idempotency-Key` with the response that it
    had, and run the app once.

    *tenant* is asked on every request, before anything is looked up: it gets the ASGI scope and
    says whose request this is, or None if that is not known, which is answered with 401; a
    PermissionError is answered with 403. *routes* are the requests that are effects; without
    them, everything with one of *methods*. *profile* is `ietf`, `stripe_v1`, `stripe_v2` or a
    `Profile`. Requests of more than *body_max* bytes are refused, and so are those whose body
    rests for *body_piece_s* seconds, or takes longer than *body_s* in all. Of a response up to
    *response_max* bytes are kept, and those of its headers that are usual or in *headers*.
    Beside what is kept, at most *memory_max* bytes of each are in memory. *docs* is where your
    clients can read about it. *name* keeps apart two apps that share a guard. *quota* says how
    much each tenant may ask for.
    """

    def __init__(
        self,
        app: App,
        guard: Guard,
        *,
        tenant: Tenant,
        routes: Sequence[Route] | None = None,
        methods: Sequence[str] = METHODS,
        profile: str | Profile = IETF,
        name: str = "http",
        headers: Sequence[str] = (),
        body_max: int = 10 * MEBIBYTE,
        body_piece_s: float = BODY_PIECE_S,
        body_s: float = BODY_S,
        response_max: int = MEBIBYTE,
        memory_max: int = MEBIBYTE // 4,
        lease_s: float = 30.0,
        deadline_s: float = 90.0,
        docs: str = "",
        quota: Quota | None = None,
    ) -> None:
        if not callable(tenant):
            raise ContractViolation(
                f"tenant={tenant!r}: give a function of the ASGI scope that says whose request it"
                " is. Without it, two customers could be shown each other's responses."
            )
        of_type("guard", guard, Guard, "a Guard")
        of_type("quota", quota, Quota, "a Quota, such as Quota(keys=1000, per_s=3600)")
        for route in several("routes", routes or ()):
            of_type("routes", route, Route, "each as Route('/payments')")
        whole(body_max=body_max, response_max=response_max, memory_max=memory_max)
        self.app, self.guard, self.tenant, self.profile = app, guard, tenant, profile_of(profile)
        piece_s, whole_s = seconds(body_piece_s, "body_piece_s"), seconds(body_s, "body_s")
        limits = BodyLimits(body_max, piece_s, whole_s)
        if min(piece_s, whole_s) <= 0:
            why = f"body_piece_s={body_piece_s}, body_s={body_s}: a body takes some time"
            raise ContractViolation(why)
        self._name, self._docs, self._limits = named(name, "name"), docs, limits
        self._keeping = Keeping(kept_headers(several("headers", headers)), response_max, memory_max)
        self._lease_s, self._deadline_s = lease_s, deadline_s
        self._meter = None if quota is None else Meter(quota)
        self._flagged = lru_cache(TENANTS_MAX)(partial(flagged, what="tenant"))
        served = (Route("*", methods),) if routes is None else routes
        self._served = [self._serve(route) for route in served]

    def _serve(self, route: Route) -> _Served:
        profile = self.profile
        downstream = (
            profile.downstream if route.downstream is None else Downstream.of(route.downstream)
        )
        if downstream.before_sending:
            why = f"{route.path}: a route has no probe that could be asked before_sending"
            raise ContractViolation(why)
        contract = Contract(
            inferred=False,
            name=self._name if route.path == "*" else f"{self._name} {route.path}",
            kind=kind_of(route.kind),
            downstream=downstream,
            window_s=profile.window_s if route.window is None else seconds(route.window, "window"),
            tombstone_s=profile.tombstone_s,
            lease_s=self._lease_s,
            wait_s=profile.wait_s,
            retry=Retry(attempts=1, deadline_s=self._deadline_s),
        )
        # the door for rooms that make their own requests
        hosted = self.guard._host(contract, _run)  # noqa: SLF001
        if route.downstream is None:
            hosted.check.believe()  # the profile says how its handlers are written
        return _Served(
            route,
            route.pattern(),
            frozenset(method.upper() for method in route.methods),
            profile.required if route.required is None else route.required,
            Fields(tuple(route.include), tuple(route.exclude)),
            hosted,
            route.path.endswith("*"),
            hosted.terms.downstream is Capability.TRANSACTION,
        )

    # ------------------------------------------------------------ a request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = self._match(scope) if scope["type"] == "http" and SEEN not in scope else None
        if served is None:
            return await self.app(scope, receive, send)
        headers = read_headers(scope["headers"])
        if not headers.lines and not served.required:
            return await self.app(scope, receive, send)
        body = Spooled(self._keeping.memory_max)
        spending: Spending | None = None  # None: nothing is counted
        try:
            tenant = await self._tenant(scope)
            identity = _identity(served, scope, tenant, self._key(headers.lines))
            if self._meter is not None:
                spending = await self._spend(self._meter, tenant, identity, headers.length)
            await self._read(headers.length, receive, body)
            if spending is not None:
                _within_quota(spending.count_body(body.size))
            fingerprint = await self._fingerprint(served, scope, headers, body)
            within = served.in_transaction
            exchange = ResponseRecorder(
                self.app, scope, body, send, self.profile, self._keeping, in_transaction=within
            )
            prepared = _prepared(served, scope, tenant, identity, fingerprint, exchange)
            await self._once(served.tool, prepared, exchange, send, spending)
        except _Refused as refused:
            await self._refuse(refused, scope, send)
        except Gone:
            with suppress(OSError):
                await UNHEARD.deliver(send)
        finally:
            body.close()
            if spending is not None:
                spending.close()
        return None

    async def _refuse(self, refused: _Refused, scope: Scope, send: Send) -> None:
        trouble, after_s = refused.trouble, refused.retry_after_s
        answer = refusal(self.profile, trouble, refused.detail, self._docs, retry_after_s=after_s)
        await (last(answer, scope) if trouble is Trouble.BODY_TOO_SLOW else answer).deliver(send)

    def _match(self, scope: Scope) -> _Served | None:
        """By its method in capitals, as ASGI has it: some servers hand on what they got, and
        some apps and upstreams see no difference.
        """
        method, path, root = scope["method"].upper(), scope["path"], scope.get("root_path", "")
        below = path[len(root) :] if root and path.startswith(root + "/") else path
        for served in self._served:
            fits = served.pattern.fullmatch
            if method in served.methods and (fits(below) or fits(path)):
                return served
        return None

    async def _tenant(self, scope: Scope) -> str:
        try:
            tenant = self.tenant(scope)
            if type(tenant) is not str and inspect.isawaitable(tenant):
                tenant = await tenant
        except PermissionError:
            raise _Refused(Trouble.NOT_ALLOWED) from None
        if tenant is None:
            raise _Refused(Trouble.NOT_AUTHENTICATED)
        return self._flagged(tenant) if type(tenant) is str else flagged(tenant, "tenant")

    def _key(self, lines: Sequence[bytes]) -> str:
        if not lines:
            raise _Refused(Trouble.KEY_MISSING)
        profile = self.profile
        try:
            key = key_of(lines, strict=profile.strict)
        except Malformed as error:
            why = str(error)
            raise _Refused(Trouble.KEY_MALFORMED, f"{why[0].upper()}{why[1:]}.") from None
        if not profile.length_min <= len(key) <= profile.length_max:
            allowed = f"{profile.length_min} to {profile.length_max} are allowed"
            raise _Refused(Trouble.KEY_MALFORMED, f"It has {len(key)} characters; {allowed}.")
        if guessable(key, profile.bits_min):
            why = "It is too easy to guess: use a random one, such as a UUID."
            raise _Refused(Trouble.KEY_MALFORMED, why)
        return key

    async def _read(self, announced: bytes, receive: Receive, body: Spooled) -> None:
        if announced.isdigit() and int(announced[:20]) > self._limits.bytes_max:
            self._too_large()
        try:
            await read_body(receive, body, self._limits)
        except BodyTooLarge:
            self._too_large()
        except TooSlow:
            raise _Refused(Trouble.BODY_TOO_SLOW) from None

    def _too_large(self) -> NoReturn:
        why = f"At most {self._limits.bytes_max} bytes are allowed."
        raise _Refused(Trouble.BODY_TOO_LARGE, why) from None

    async def _spend(
        self, meter: Meter, tenant: str, identity: str, announced: bytes
    ) -> Spending | None:
        """What this request takes of the quota; None: nothing, its key is known."""
        try:
            known = await self.guard.store.aapply(Find(identity))
        except StoreUnavailable:
            raise _Refused(Trouble.STORE_UNAVAILABLE) from None
        if known is not None:
            return None
        size = min(int(announced[:20]), self._limits.bytes_max) if announced.isdigit() else 0
        _within_quota(meter.take(tenant, keys=1, bytes=size))
        return Spending(meter, tenant, size)

    # ------------------------------------------------------------ an effect

    async def _once(
        self,
        tool: GuardedTool,
        prepared: Prepared,
        exchange: ResponseRecorder,
        send: Send,
        spending: Spending | None,
    ) -> None:
        try:
            ending = await tool.arun(prepared)
            if spending is not None and isinstance(ending, Fresh):
                spending.count_kept(exchange.kept)
            answer = await self._conclude(ending, exchange, prepared.ref)
            if answer is not None:
                exchange.withhold()
                await answer.deliver(send)
            if exchange.began:
                await exchange.rest()
        finally:
            if exchange.began:
                await exchange.close()

    async def _fingerprint(
        self, served: _Served, scope: Scope, headers: RequestHeaders, body: Spooled
    ) -> str:
        query, kind = scope["query_string"].decode("latin-1"), headers.content_type
        encoding = headers.content_encoding.decode("latin-1")
        asked = ParsedRequest(asked_path(scope), query, kind.decode("latin-1"), encoding)
        secret = served.tool.house.secret
        if body.in_memory and body.size <= AT_ONCE_MAX:
            return fingerprint_of(asked, body.view(), served.fields, secret)
        return await asyncio.to_thread(fingerprint_of, asked, body.view(), served.fields, secret)

    async def _conclude(
        self, ending: Ending, exchange: ResponseRecorder, effect: EffectRef
    ) -> Response | None:
        """How the call ended, as a response. None: the app's own is on its way."""
        trouble: Trouble
        match ending:
            case Fresh():
                await exchange.deliver()
                return None
            case Replay() | Fenced() if exchange.left:
                exchange.withhold()
                why = "its response was cut off, because another caller owns the record now."
                raise LeaseLost(f"{effect}: {why}", effect=effect)
            case Replay(recorded):
                answer = replay(recorded)
                if isinstance(answer, Response):
                    return answer
                trouble = answer
            case NothingSent(Unstored()) | Exhausted(Unstored()) | Lost(Unstored()):
                if not isinstance(ending, NothingSent):
                    exchange.doubt()
                await exchange.deliver()  # whatever became of the record: this is what the app says
                return None
            case NothingSent(RecordTaken()) | Exhausted(RecordTaken()):
                # what it did is undone: the same request again runs from the start
                trouble = Trouble.IN_FLIGHT
            case (
                NothingSent(error) | Exhausted(error) | Lost(error) | Rejection(error) | Done(error)
            ):
                if exchange.raised(error):
                    return None
                if not isinstance(error, StoreUnavailable):
                    raise error
                trouble = Trouble.STORE_UNAVAILABLE
            case Busy() | Latched() | Fenced():
                trouble = Trouble.IN_FLIGHT
            case Mismatch():
                trouble = Trouble.CONFLICT
            case Doubtful():
                trouble = Trouble.IN_DOUBT
            case KeyExpired():
                trouble = Trouble.EXPIRED
            case (
                Unavailable()
                | OutOfPatience()
                | Early()
                | Unapproved()
                | OverLimit()
                | Unmet()
                | Undetermined()
            ):
                trouble = Trouble.STORE_UNAVAILABLE
            case _:
                assert_never(ending)
        # the answer to a COMMIT was lost, and the store could not be asked
        perhaps_done = isinstance(ending, Exhausted | Lost)
        return refusal(
            self.profile, trouble, docs=self._docs, effect=effect, perhaps_done=perhaps_done
        )


def _within_quota(wait_s: float) -> None:
    if wait_s > 0:
        raise _Refused(Trouble.OVER_QUOTA, retry_after_s=wait_s)


def _identity(served: _Served, scope: Scope, tenant: str, key: str) -> str:
    tool = served.tool
    where = exact_path(scope["path"]) if served.anywhere else served.route.path
    return Identity(tenant, "", tool.contract.name, b"", tool.house.secret).key(
        ByName((scope["method"].upper(), where, key))
    )


def _prepared(
    served: _Served,
    scope: Scope,
    tenant: str,
    identity: str,
    fingerprint: str,
    exchange: ResponseRecorder,
) -> Prepared:
    tool = served.tool
    where, arguments = route_of(scope["method"].upper(), scope["path"])
    request = Request(identity, fingerprint, tool.terms, tenant, where, "", arguments)
    ref = EffectRef(tool.contract.name, identity, tenant, where)
    return Prepared(request, ref, (exchange,), {})
