"""What the adapters of agent frameworks have in common.

A call of the tool is a run of an agent. The model is a script: it calls the tool once with the
wish's arguments, under a new id, and then answers. Where its conversation shows that this very
call was answered, it answers at once. A retry is the same prompt again in the same conversation;
best configured, the framework keeps the conversation in its own way, and where it hands the id of a
call to the tool, the tool sends that as its key. What a framework does together with an engine is
that engine's row.

The tool returns text, as JSON. What the caller is told is what the model was shown.

Where a call waits for a person, the application keeps the paused run in a file, as the framework
hands it out, and the person's yes in another. Every process goes on with what was kept, as each
worker of a web back end does. A conversation that waits takes nothing else, so each wish has its
own. Best configured, what was kept is gone when the run has ended: the next caller is answered from
the conversation. With effectonce it stays, as in its examples: a run that is resumed again is
answered from the store.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from oncebench.adapters import _effectonce
from oncebench.adapters._retries import looking_first, worth_a_retry
from oncebench.kit import Says, Setup, Told, Wish

# What no framework alone does, and none says that it does.
BARE = {
    "functions": "a framework names its tools, and a model passes arguments by name",
    "results": "a framework keeps messages; it has no results of calls to give again",
    "business_key": "a framework has no key for what is wanted; a call is what the model asks for",
    "conflict": "a framework does not compare calls",
}
WITH_EFFECTONCE = {"functions": BARE["functions"]}
PROMPT = "Pay what is due."
NAME = "pay"  # of the tool, as the model sees it
Shown = Iterable[tuple[str, Any]]  # ids of calls, with what the model was shown


class ToolError(Exception):
    """The framework shows the model an error of the tool."""


class Stopped(Exception):
    """A run stopped in the middle, and what it did may not be repeated: a person looks."""


class Waits(Exception):
    """The run has paused: a person has to say yes first."""


class Run:
    """One run of an agent, with the script of its model."""

    def __init__(
        self, setup: Setup, tool: Callable[..., str], conversation: str, arguments: dict[str, Any]
    ) -> None:
        self.tool, self.conversation, self.arguments = tool, conversation, arguments
        self.prompt = PROMPT
        self.folder, self.best, self.approval = setup.folder, setup.best, setup.approval
        self.kept: Path | None = setup.folder if setup.best else None
        meant = json.dumps({**arguments, "amount": float(arguments["amount"])}, sort_keys=True)
        self._repeatable = setup.repeatable
        self.may_repeat: Callable[[Exception], bool] = partial(worth_a_retry, setup)
        self._digest = hashlib.sha256(meant.encode()).hexdigest()[:8]
        if self.approval:
            self.conversation = f"{conversation}-{self._digest}"
        self.paused = setup.folder / f"{self.conversation}.paused"
        self.yes = setup.folder / f"{self.conversation}.yes"
        self.in_store = False  # the yes is in effectonce's store
        self._asked = False
        self.call: str | None = None  # the id of the call that the tool serves

    @property
    def arguments_json(self) -> str:
        return json.dumps(self.arguments)

    @property
    def pauses(self) -> bool:
        """Whether the framework itself asks a person before each call."""
        return self.approval and not self.in_store

    def resume(self, call: str | None) -> None:
        """A run that stopped in the middle goes on, with the call that it was at."""
        if self.best and not self._repeatable and not self.in_store:
            raise Stopped(self.conversation)
        self.call = call

    def pause(self, state: str | bytes) -> Waits:
        """Keep a run that has paused."""
        keep(self.paused, state)
        return Waits(self.conversation)

    def go_on(self, call: str | None) -> None:
        """The run that was kept is resumed, with the id of the call that waits."""
        if self.pauses and not self.yes.exists():
            raise Waits(self.conversation)
        self.call, self._asked = call, True

    def end(self) -> None:
        """The run has ended, and its conversation is kept."""
        if self.best and not self.in_store:
            self.paused.unlink(missing_ok=True)

    def asks(self, shown: Shown) -> str | None:
        """The id of a new call, if the model calls the tool now."""
        if self._asked or any(_answered(text) for text in self._mine(shown)):
            return None
        self._asked = True
        self.call = f"call_{self._digest}_{uuid.uuid4().hex[:8]}"
        return self.call

    def answer(self, shown: Shown) -> Any:
        """What the model was shown last of this call."""
        text = [*self._mine(shown)][-1]
        if _answered(text):
            return json.loads(text)["answer"]
        said = _our_error(text)
        if said is None:
            raise ToolError(str(text)[:300])
        return said

    def _mine(self, shown: Shown) -> Iterator[Any]:
        return (text for call, text in shown if call.startswith(f"call_{self._digest}_"))


def opened(setup: Setup, talk: Callable[[Run], Shown], *, ids: bool = False) -> Callable[..., Any]:
    """*talk* runs an agent, and returns what the model was shown. *ids*: the framework hands the id
    of a call to the tool. Best configured, the tool asks the service first, where it can be asked.
    """
    protect = _opened(setup, talk, ids=ids)
    return lambda tool: protect(looking_first(setup, tool))


def _opened(setup: Setup, talk: Callable[[Run], Shown], *, ids: bool = False) -> Callable[..., Any]:
    conversation = ""
    serving: list[Run] = []
    if ids and setup.best:
        setup.key = lambda: serving[-1].call

    @contextmanager
    def around(wish: Wish) -> Iterator[None]:
        nonlocal conversation
        conversation = wish.run
        yield

    setup.around = around
    setup.approve = lambda wish: _say_yes(setup, wish)

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        def call(order: str, amount: int, note: str = "") -> Any:
            arguments = {"order": order, "amount": amount, "note": note}
            run = Run(setup, as_text(tool), conversation, arguments)
            serving[:] = [run]
            return run.answer(talk(run))

        return call

    return protect


def _say_yes(setup: Setup, wish: Wish) -> None:
    """The application writes down that a person said yes to what waits."""
    arguments = {"order": wish.order, "amount": wish.amount, "note": wish.note}
    run = Run(setup, str, wish.run, arguments)
    if not run.paused.exists():
        raise LookupError(f"nothing waits for {wish.order}")
    run.yes.touch()


def keep(file: Path, content: str | bytes) -> None:
    """Write it so that other processes read all of it, or what was there before."""
    data = content if isinstance(content, bytes) else content.encode()
    fresh = file.with_name(f"{file.name}-{os.getpid()}")
    fresh.write_bytes(data)
    fresh.replace(file)


def as_text(tool: Callable[..., Any]) -> Callable[..., str]:
    def pay(order: str, amount: int, note: str = "") -> str:
        """Pay an amount for an order."""
        return text_of(tool(order, amount, note))

    return pay


def text_of(answer: Any) -> str:
    return json.dumps({"answer": answer}, default=repr)


def bare_said(error: Exception) -> Says:
    """A framework says nothing about what happened: it hands on the error of the tool."""
    match error:
        case Waits():
            return "waiting"
        case Stopped():
            return "unknown"
        case _:
            return "raised"


def _read(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None


def _answered(text: Any) -> bool:
    read = _read(text)
    return isinstance(read, dict) and set(read) == {"answer"}


# ---------------------------------------------------------------- with effectonce


def open_with_effectonce(
    setup: Setup, talk: Callable[[Run, dict[str, Any]], Shown]
) -> Callable[..., Any]:
    """*talk* gets the guard and the contracts, in the words that every integration takes.

    As shipped, the contract is declared by the tool's name. Best configured, the tool is guarded
    with `@guard.tool`. The scope is the business, and not the conversation: a wish is the same in
    the next one. Conversations are not kept, because a model that was shown a result and asks
    again means another effect (docs/howto/agents.md).
    """
    guard = _effectonce.opened(setup)
    contracts: dict[str, Any] = {}
    if not setup.best:
        contracts = {NAME: _effectonce.contract(setup)}
        if setup.temperament == "asks":
            contracts[NAME]["probe"] = _effectonce.probe(setup, text_of)
        if setup.temperament == "keys" and setup.window_s is not None:
            contracts[NAME]["window_s"] = setup.window_s
    best: list[Any] = []

    def talked(run: Run) -> Shown:
        run.kept, run.in_store = None, True
        if setup.best:
            if not best:
                best.append(_effectonce.guarded(setup, guard, run.tool, name=NAME, found=text_of))
            run.tool = best[0]
        return talk(run, {"guard": guard, "contracts": contracts})

    protect = _opened(setup, talked)
    setup.approve = lambda wish: _effectonce.say_yes(guard, wish)
    return protect


TOLD: dict[str, Says] = {
    "OUTCOME_UNKNOWN": "unknown",
    "RETRY_IN_FLIGHT": "busy",
    "GAVE_UP": "busy",
    "LEASE_LOST": "busy",
    "KEY_CONFLICT": "conflict",
    "CONTRACT_VIOLATION": "conflict",
    "KEY_EXPIRED": "expired",
    "RESULT_UNAVAILABLE": "happened",
    "REPLAYED_FAILURE": "failed",
    "APPROVAL_NEEDED": "waiting",
    "NOT_APPROVED": "failed",
    "TOOL_FAILED": "failed",
}


def _our_error(text: Any) -> Told | None:
    """The error of effectonce that the model was shown, perhaps with words around it."""
    began = text.find('{"code": "') if isinstance(text, str) else -1
    read = json.JSONDecoder().raw_decode(text, began)[0] if began >= 0 else _read(text)
    code = read.get("code") if isinstance(read, dict) else None
    return None if code is None else Told(TOLD.get(code, "raised"))
