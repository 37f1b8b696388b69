"""A tool whose calls are reported: the same methods, with an observer. They replace the others when the first observer comes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from effectonce._core.canonical import canonical
from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import Ending, Fresh, Replay
from effectonce._core.keys import derive
from effectonce._core.ops import Flow, Recorded
from effectonce._core.retry_flow import Over, whole_call
from effectonce._core.rules import Record
from effectonce._core.safe_access import attempt
from effectonce._runtime.drive import AsyncPlain, Plain, Prepared, adrive, drive
from effectonce._tools.event_recorder import CallFacts, EventRecorder, heard, heard_call
from effectonce.errors import ContractViolation, EffectOnceError
from effectonce.retries.retry import Retrier, concluded
from effectonce.stores.base import Store

DIGEST_LENGTH = 12  # hexadecimal characters: enough to tell two arguments of a few days apart


def facts_of(tool: Any) -> CallFacts:
    """What all calls of this tool have in common."""
    return CallFacts(
        watch=tool.house.watch,
        tool=tool.contract.name,
        kind=str(tool.contract.kind),
        classify=tool.retrying.classify,
        resend_s=tool.terms.resend_s,
        digests=functools.partial(_digests, tool),
        system=_system(tool.house.store),
    )


def _system(store: Any) -> str:
    """The kind of store, by the name that OpenTelemetry has for it."""
    name = type(getattr(store, "_store", store)).__name__.removesuffix("Store").lower()  # below a seal
    return {"postgres": "postgresql"}.get(name, name)


def _digests(tool: Any, call: Prepared) -> dict[str, str]:
    """One for each argument that counts. Only under a secret: a bare digest of a card number tells as much as the number itself."""
    digests: dict[str, str] | None = attempt(_each, tool, call) if tool.house.secret else None
    return digests or {}  # a request of HTTP or a step of a workflow has other arguments than its tool


def _each(tool: Any, call: Prepared) -> dict[str, str]:
    arguments, secret = tool.signature.bind(call.args, call.kwargs), tool.house.secret
    return {
        name: derive("argument", tool.contract.name, name, canonical(arguments[name]), secret=secret)[:DIGEST_LENGTH]
        for name in tool.signature.matched
    }


def watched(tool: Any) -> dict[str, Callable[..., Any]]:
    """The methods of *tool* that tell."""
    methods, facts = type(tool), facts_of(tool)

    def prepare(*args: Any, **kwargs: Any) -> Prepared:
        try:
            prepared: Prepared = methods.prepare(tool, *args, **kwargs)
            return prepared
        except ContractViolation as error:
            telling = EventRecorder(facts, EffectRef(facts.tool, ""))
            telling.begins()
            telling.cut(error)
            raise

    def flow(prepared: Prepared, *calling: Any) -> Flow[Ending]:
        return observed(methods.flow(tool, prepared, *calling), prepared)

    def observed(flow: Flow[Ending], prepared: Prepared) -> Flow[Ending]:
        return heard_call(flow, EventRecorder(facts, prepared.ref, prepared, workflow=tool.terms.steps))

    def known(prepared: Prepared) -> Recorded | None:
        """A replay that needs no flow."""
        recorded: Recorded | None = methods.known(tool, prepared)
        if recorded is not None:
            telling = EventRecorder(facts, prepared.ref, prepared)
            telling.begins()
            telling.ends(Replay(recorded, coalesced=False))
        return recorded

    def asking(record: Record, prepared: Prepared) -> Flow[Ending]:
        """There is no call to tell of, only what the probe finds out."""
        telling = EventRecorder(facts, prepared.ref, doubt_age_s=max(0.0, facts.clock() - record.decided_at))
        return heard(methods.asking(tool, record, prepared), telling)

    return {"prepare": prepare, "flow": flow, "observed": observed, "known": known, "asking": asking}


# ---------------------------------------------------------------- reads


def watched_read(tool: Any, read: Retrier) -> Callable[..., Any]:
    """A sync read that tells. It has no record, so there is no effect to name."""
    facts, name = facts_of(tool), tool.contract.name

    def call(*args: Any, **kwargs: Any) -> Any:
        flow, store = _reading(read, facts)
        ended = drive(flow, Plain(store, functools.partial(tool.function, *args, **kwargs)))
        try:
            return concluded(ended, name, read=True)
        except EffectOnceError as error:
            return tool.rescue(error, args, kwargs)

    return call


def watched_aread(tool: Any, read: Retrier) -> Callable[..., Any]:
    """The same for async reads."""
    facts, name = facts_of(tool), tool.contract.name

    async def call(*args: Any, **kwargs: Any) -> Any:
        flow, store = _reading(read, facts)
        ended = await adrive(flow, AsyncPlain(store, functools.partial(tool.function, *args, **kwargs)))
        try:
            return concluded(ended, name, read=True)
        except EffectOnceError as error:
            return await tool.arescue(error, args, kwargs)

    return call


def _reading(read: Retrier, facts: CallFacts) -> tuple[Flow[Fresh | Over], Store | None]:
    patience, store = read.patience(facts.tool, read.env.now(), attempt=0)
    return heard_call(whole_call(patience, repeatable=True), EventRecorder(facts, None)), store
