"""A tool whose calls are told: the same methods, with somebody who listens. They replace the others when the first observer comes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from effectonce._core.canonical import canonical
from effectonce._core.endings import Ending
from effectonce._core.keys import derive
from effectonce._core.plain import whole_call
from effectonce._core.records import Record
from effectonce._drive import AsyncPerformer, AsyncPlain, Performer, Plain, Prepared, adrive, drive
from effectonce.effect import EffectRef
from effectonce.errors import ContractViolation, EffectOnceError
from effectonce.observe._telling import AsyncTeller, Facts, Teller, Telling
from effectonce.retrying import Retrier, concluded

DIGEST_LENGTH = 12  # hexadecimal characters: enough to tell two arguments of a few days apart


def facts_of(tool: Any) -> Facts:
    """What all calls of this tool have in common."""
    return Facts(
        watch=tool.house.watch,
        tool=tool.contract.name,
        kind=str(tool.contract.kind),
        classify=tool.retrying.classify,
        digests=functools.partial(_digests, tool),
        system=_system(tool.house.store),
    )


def _system(store: Any) -> str:
    """The kind of store, by the name that OpenTelemetry has for it."""
    name = type(getattr(store, "_store", store)).__name__.removesuffix("Store").lower()  # below a seal
    return {"postgres": "postgresql"}.get(name, name)


def _digests(tool: Any, call: Prepared) -> dict[str, str]:
    """One for each argument that counts. Only under a secret: a bare digest of a card number tells as much as the number itself."""
    secret, signature = tool.house.secret, tool.signature
    if not secret:
        return {}
    arguments = signature.bind(call.args, call.kwargs)
    return {
        name: derive("argument", tool.contract.name, name, canonical(arguments[name]), secret=secret)[:DIGEST_LENGTH]
        for name in signature.matched
    }


def watched(tool: Any) -> dict[str, Callable[..., Any]]:
    """The methods of *tool* that tell."""
    methods, facts = type(tool), facts_of(tool)

    def prepare(*args: Any, **kwargs: Any) -> Prepared:
        try:
            prepared: Prepared = methods.prepare(tool, *args, **kwargs)
            return prepared
        except ContractViolation as error:
            telling = Telling(facts, EffectRef(facts.tool, ""))
            telling.begins()
            telling.cut(error)
            raise

    def run(prepared: Prepared) -> Ending:
        telling = Telling(facts, prepared.ref, prepared)
        telling.begins()
        try:
            ending: Ending = methods.run(tool, prepared, lambda setup, call: Teller(Performer(setup, call), telling))
        except BaseException as error:  # told, and raised as it is
            telling.cut(error)
            raise
        telling.ends(ending)
        return ending

    async def arun(prepared: Prepared) -> Ending:
        telling = Telling(facts, prepared.ref, prepared)
        telling.begins()
        try:
            heard = lambda setup, call: AsyncTeller(AsyncPerformer(setup, call), telling)  # noqa: E731
            ending: Ending = await methods.arun(tool, prepared, heard)
        except BaseException as error:  # told, and raised as it is, cancellation included
            telling.cut(error)
            raise
        telling.ends(ending)
        return ending

    def asking(record: Record, ref: EffectRef) -> Telling:
        """A probe on its own: there is no call to tell of, only what it finds out."""
        return Telling(facts, ref, doubt_age_s=max(0.0, facts.clock() - record.decided_at))

    def reconcile(record: Record) -> Any:
        return methods.reconcile(tool, record, lambda s, call: Teller(Performer(s, call), asking(record, call.ref)))

    def areconcile(record: Record) -> Any:
        return methods.areconcile(tool, record, lambda s, call: AsyncTeller(AsyncPerformer(s, call), asking(record, call.ref)))

    return {"prepare": prepare, "run": run, "arun": arun, "reconcile": reconcile, "areconcile": areconcile}


# ---------------------------------------------------------------- reads


def watched_read(tool: Any, read: Retrier) -> Callable[..., Any]:
    """A sync read that tells. It has no record, so there is no effect to name."""
    facts, rescue, name = facts_of(tool), tool.rescue, tool.contract.name

    def call(*args: Any, **kwargs: Any) -> Any:
        telling = Telling(facts, None)
        telling.begins()
        patience, store = read.patience(name, read.env.now(), attempt=0)
        perform = Plain(store, functools.partial(tool.function, *args, **kwargs))
        ended = drive(whole_call(patience, repeatable=True), Teller(perform, telling))
        telling.ends(ended)
        try:
            return concluded(ended, name)
        except EffectOnceError as error:
            return rescue(error, args, kwargs)

    return call


def watched_aread(tool: Any, read: Retrier) -> Callable[..., Any]:
    """The same in the other colour."""
    facts, rescue, name = facts_of(tool), tool.arescue, tool.contract.name

    async def call(*args: Any, **kwargs: Any) -> Any:
        telling = Telling(facts, None)
        telling.begins()
        patience, store = read.patience(name, read.env.now(), attempt=0)
        perform = AsyncPlain(store, functools.partial(tool.function, *args, **kwargs))
        ended = await adrive(whole_call(patience, repeatable=True), AsyncTeller(perform, telling))
        telling.ends(ended)
        try:
            return concluded(ended, name)
        except EffectOnceError as error:
            return await rescue(error, args, kwargs)

    return call
