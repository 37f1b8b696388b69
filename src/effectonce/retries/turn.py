"""Turns: what an agent may spend on one answer, in whichever process it goes on."""

from __future__ import annotations

from contextvars import ContextVar

from effectonce._core.budget import Purchase, TurnState
from effectonce._core.effect_ref import EffectRef
from effectonce._core.keys import derive
from effectonce._drivers import drive
from effectonce._runtime.performers import adrive_call
from effectonce._runtime.plain_performers import AsyncPlain, Plain
from effectonce._runtime.step import ContextScope
from effectonce.errors import GaveUp
from effectonce.policy import Budget
from effectonce.stores.base import Store

turn_here: ContextVar[TurnBudget | None] = ContextVar("effectonce_turn", default=None)


class TurnBudget(ContextScope["TurnBudget"]):
    """`with guard.turn(conversation, turn) as turn:` every call inside spends from one budget,
    also after a crash.
    """

    variable = turn_here
    what = "turn"

    def __init__(self, store: Store, tenant: str, scope: str, turn: str, budget: Budget) -> None:
        super().__init__(self)
        self.store = store
        cell = "turn/" + derive("turn", tenant, scope, turn)
        self.turn = TurnState(cell, budget.limits, f"turn {turn}")

    @property
    def remaining_s(self) -> float:
        """How many seconds were left when something was last spent."""
        return self.turn.left_s

    def repair(self) -> None:
        """Take a repair prompt: the model sees what was wrong. Raises `GaveUp` if none is left."""
        self._taken(drive(self.turn.spend(Purchase(repair=True)), Plain(self.store)))

    async def arepair(self) -> None:
        """The same, awaited."""
        flow = self.turn.spend(Purchase(repair=True))
        self._taken(await adrive_call(flow, AsyncPlain(self.store)))

    def _taken(self, refusal: str) -> None:
        if refusal:
            action = "Do not correct the answer again in this turn: use what there is, or end it."
            raise GaveUp(f"No repair prompt: {refusal}.", retriable=False, corrective_action=action)


def step_of(effect: EffectRef) -> str:
    """What a turn calls a step: enough to count it, and nothing that can be read."""
    if not effect.step:
        return effect.key[-16:]
    return derive("step", effect.tenant, effect.scope, effect.step)[:16]
