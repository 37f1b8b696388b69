"""The events of a tool's calls. Imported with the first observer: until then calls pay nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from effectonce._core.canonical import canonical
from effectonce._core.effect_ref import EffectRef
from effectonce._core.endings import Ending, Fresh, Replay
from effectonce._core.keys import derive
from effectonce._core.ops import Flow, Recorded
from effectonce._core.record import Record
from effectonce._core.retry_flow import Over, whole_call
from effectonce._core.safe_access import attempt
from effectonce._drivers import drive
from effectonce._runtime.performers import Prepared, adrive_call
from effectonce._runtime.plain_performers import AsyncPlain, Plain
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
    # below a seal
    name = type(getattr(store, "_store", store)).__name__.removesuffix("Store").lower()
    return {"postgres": "postgresql"}.get(name, name)


def _digests(tool: Any, call: Prepared) -> dict[str, str]:
    """One per argument that counts. Only under a secret: a bare digest reveals a card number."""
    digests: dict[str, str] | None = attempt(_each, tool, call) if tool.house.secret else None
    # a request of HTTP or a step of a workflow has other arguments than its tool
    return digests or {}


def _each(tool: Any, call: Prepared) -> dict[str, str]:
    arguments, secret = tool.signature.bind(call.args, call.kwargs), tool.house.secret
    return {
        name: derive(
            "argument", tool.contract.name, name, canonical(arguments[name]), secret=secret
        )[:DIGEST_LENGTH]
        for name in tool.signature.matched
    }


class CallEvents:
    """The events of one tool's calls. Wraps its flows; what they ask and return stays the same."""

    def __init__(self, tool: Any) -> None:
        self._facts, self._steps = facts_of(tool), tool.terms.steps

    def of_call(self, flow: Flow[Ending], prepared: Prepared) -> Flow[Ending]:
        return heard_call(
            flow, EventRecorder(self._facts, prepared.ref, prepared, workflow=self._steps)
        )

    def of_refusal(self, error: ContractViolation) -> None:
        """A call that was refused before it had a key."""
        recorder = EventRecorder(self._facts, EffectRef(self._facts.tool, ""))
        recorder.begins()
        recorder.cut(error)

    def of_replay(self, recorded: Recorded, prepared: Prepared) -> None:
        """A replay that needed no flow."""
        recorder = EventRecorder(self._facts, prepared.ref, prepared)
        recorder.begins()
        recorder.ends(Replay(recorded, coalesced=False))

    def of_probe(self, flow: Flow[Ending], record: Record, prepared: Prepared) -> Flow[Ending]:
        """No call, only what the probe finds out."""
        age_s = max(0.0, self._facts.clock() - record.decided_at)
        return heard(flow, EventRecorder(self._facts, prepared.ref, doubt_age_s=age_s))


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
        ended = await adrive_call(
            flow, AsyncPlain(store, functools.partial(tool.function, *args, **kwargs))
        )
        try:
            return concluded(ended, name, read=True)
        except EffectOnceError as error:
            return await tool.arescue(error, args, kwargs)

    return call


def _reading(read: Retrier, facts: CallFacts) -> tuple[Flow[Fresh | Over], Store | None]:
    patience, store = read.patience(facts.tool, read.env.now(), attempt=0)
    return heard_call(whole_call(patience, repeatable=True), EventRecorder(facts, None)), store
