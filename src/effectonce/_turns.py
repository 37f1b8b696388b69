"""Turns: what an agent may spend on one answer, in whichever process it goes on."""

from __future__ import annotations

from contextvars import ContextVar, Token
from hashlib import sha256
from types import TracebackType
from typing import Self

from effectonce._core.budget import Purchase, Turn
from effectonce._drive import AsyncPlain, Plain, adrive, drive
from effectonce.effect import EffectRef
from effectonce.errors import GaveUp
from effectonce.policy import Budget
from effectonce.stores.base import Store

turn_here: ContextVar[TurnBudget | None] = ContextVar("effectonce_turn", default=None)


class TurnBudget:
    """`with guard.turn(conversation, turn) as turn:` every call inside spends from one budget, also after a crash."""

    def __init__(self, store: Store, tenant: str, scope: str, turn: str, budget: Budget) -> None:
        self.store = store
        self.turn = Turn(f"turn/{_hashed(tenant, scope, turn)}", budget.limits, f"turn {turn}")
        self._token: Token[TurnBudget | None] | None = None

    @property
    def remaining_s(self) -> float:
        """How many seconds were left when something was last spent."""
        return self.turn.left_s

    def repair(self) -> None:
        """Take one repair prompt: the model is about to be told what was wrong with its answer. Raises `GaveUp` if there is none left."""
        self._taken(drive(self.turn.spend(Purchase(repair=True)), Plain(self.store)))

    async def arepair(self) -> None:
        """The same, awaited."""
        self._taken(await adrive(self.turn.spend(Purchase(repair=True)), AsyncPlain(self.store)))

    def _taken(self, refusal: str) -> None:
        if refusal:
            action = "Do not correct the answer again in this turn: use what there is, or end it."
            raise GaveUp(f"No repair prompt: {refusal}.", retriable=False, corrective_action=action)

    def __enter__(self) -> Self:
        if self._token is not None:
            raise RuntimeError("this turn is already entered; make another with guard.turn()")
        self._token = turn_here.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._token is not None:
            turn_here.reset(self._token)
            self._token = None

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def step_of(effect: EffectRef) -> str:
    """What a turn calls a step: enough to count it, and nothing that somebody could read."""
    return _hashed(effect.scope, effect.step)[:16] if effect.step else effect.key[-16:]


def _hashed(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()[:32]
