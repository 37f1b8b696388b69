"""The workers of the model: the real flow of `_core/call.py`, stopped between any two of its lines.

Theory of operation. A flow is a generator that asks for one thing at a time, so a worker is
nothing but a flow that waits for its next answer. A generator cannot be copied or compared,
which exploring needs, so a worker is kept as a *pose*: where each frame of the flow stands, its
variables, and the fields of its `GuardedCall`. Two flows in the same pose do the same from there
on. For each pose one history of answers that leads to it is remembered; to go on from a pose, a
new flow is fed that history and one answer more. Every (pose, answer) is computed once.

Nothing here knows the protocol. What the flow decides is decided by the code that ships.
"""

from __future__ import annotations

import dis
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from types import CodeType, GeneratorType
from typing import Any, NamedTuple

from effectonce._core.call import GuardedCall
from effectonce._core.ops import Interrupted, Keep, NotStarted, Op, Raised, Sleep
from effectonce._core.record import Request
from effectonce._core.retry_state import Env, Plan

IDLE = 0  # the pose of a worker without a call
SOON, TOO_LATE = 0.0, 2.0
DEADLINE_S = 1.0
JUMPS = frozenset(dis.hasjrel) | frozenset(dis.hasjabs)
NOT_OF_THE_POSE = {
    "request",
    "plan",
    "env",
    "patience",
    "admission",
    "retrying",
}  # the same for every worker of one case, or looked into


class Answer(NamedTuple):
    """What a worker is told, a token that nobody uses in case it needs one, and whether its
    deadline has passed by now.
    """

    reply: Any
    fresh: str
    too_late: bool = False


class Move(NamedTuple):
    pose: int
    ending: Any = None  # how the call ended, if it did
    cancelled: bool = False  # then its caller hears of the cancellation, not of the ending


class LiveCall:
    """One flow that really runs."""

    def __init__(
        self, flow: type[GuardedCall], request: Request, plan: Plan, *, sleeps_show: bool
    ) -> None:
        self._fresh, self._now, self._sleeps_show = "", SOON, sleeps_show
        self._call = flow(
            request,
            plan,
            Env(now=lambda: self._now, new_token=lambda: self._fresh, rng=lambda: 0.0),
        )
        self._flow = self._call.flow()
        self.cancelled = False
        self.op: Op[Any] | None = None
        self.ending: Any = None

    def hear(self, answer: Answer) -> None:
        """Go on to the next thing the flow asks for, or to its end."""
        self._fresh = answer.fresh
        self._now = TOO_LATE if answer.too_late else self._now
        self.cancelled = self.cancelled or _is_cancellation(answer.reply)
        try:
            self.op = self._flow.send(answer.reply)
            # What is kept is written later: an unanswered write that lands at any time, which
            # the model makes anyway.
            while isinstance(self.op, Keep) or (
                isinstance(self.op, Sleep) and not self._sleeps_show
            ):
                self.op = self._flow.send(None)
        except StopIteration as done:
            self.op, self.ending = None, done.value

    @property
    def name(self) -> str:
        return self._call.token

    def pose(self) -> tuple[Any, ...]:
        """Everything that decides what the flow will do next, and what it asks for now."""
        fields = tuple(
            (name, value) for name, value in vars(self._call).items() if name not in NOT_OF_THE_POSE
        )
        patience = self._call.patience  # all of it that a guarded call looks at
        left = (patience.attempt, patience.give_up_at, patience.previous_s)
        return self.op, fields, left, self._now, self.cancelled, tuple(self._frames())

    def _frames(self) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
        inner: Any = self._flow
        while isinstance(inner, GeneratorType):
            frame = inner.gi_frame
            needed = _needed(frame.f_code)[frame.f_lasti] - {"self"} - NOT_OF_THE_POSE
            variables = tuple(
                (name, value) for name, value in frame.f_locals.items() if name in needed
            )
            yield frame.f_code.co_qualname, frame.f_lasti, variables
            inner = inner.gi_yieldfrom


@cache
def _needed(code: CodeType) -> dict[int, frozenset[str]]:
    """For each place in *code*: the variables that may still be read from there on. The others
    do not tell poses apart.
    """
    steps = list(dis.get_instructions(code))
    following = {a.offset: b.offset for a, b in pairwise(steps)}
    needed: dict[int, frozenset[str]] = {step.offset: frozenset() for step in steps}
    changed = True
    while changed:
        changed = False
        for step in reversed(steps):
            after = {following.get(step.offset), step.argval if step.opcode in JUMPS else None} - {
                None
            }
            later = frozenset().union(*(needed[offset] for offset in after))
            names = frozenset(step.argval if isinstance(step.argval, tuple) else (step.argval,))
            now = later
            if step.opname in ("STORE_FAST", "DELETE_FAST"):
                now = later - names
            elif "LOAD_FAST" in step.opname:
                now = later | names
            if now != needed[step.offset]:
                needed[step.offset], changed = now, True
    return needed


def _is_cancellation(reply: Any) -> bool:
    interrupted = isinstance(reply, Raised) and not isinstance(reply.error, Exception)
    return interrupted or isinstance(reply, Interrupted | NotStarted)


class Flows:
    """All poses that were seen, numbered, and what each leads to."""

    def __init__(
        self, flow: type[GuardedCall], request: Request, plan: Plan, *, sleeps_show: bool
    ) -> None:
        self._flow, self._request, self._plan, self._sleeps_show = flow, request, plan, sleeps_show
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._moves: dict[tuple[int, Answer], Move] = {}
        self.histories: list[tuple[Answer, ...]] = [()]
        # another history that leads to the same pose, if there is one
        self.twins: dict[int, tuple[Answer, ...]] = {}
        self.ops: list[Op[Any] | None] = [None]
        self.tokens: list[frozenset[str]] = [frozenset()]
        self.cancelled: list[bool] = [False]
        self.names: list[str] = [""]

    def begin(self, fresh: str) -> int:
        """The pose of a worker whose call has just begun: it asks for its claim."""
        return self.hear(IDLE, Answer(None, fresh)).pose

    def hear(self, pose: int, answer: Answer) -> Move:
        known = self._moves.get((pose, answer))
        if known is None:
            known = self._moves[pose, answer] = self._move((*self.histories[pose], answer))
        return known

    def answers(self, pose: int) -> list[Answer]:
        """What workers in this pose have been told."""
        return [answer for known, answer in self._moves if known == pose]

    def replay(self, history: tuple[Answer, ...]) -> LiveCall:
        call = LiveCall(self._flow, self._request, self._plan, sleeps_show=self._sleeps_show)
        for answer in history:
            call.hear(answer)
        return call

    def _move(self, history: tuple[Answer, ...]) -> Move:
        call = self.replay(history)
        if call.op is None:
            return Move(IDLE, call.ending, call.cancelled)
        pose = call.pose()
        if pose in self._numbers:
            self.twins.setdefault(self._numbers[pose], history)
        else:
            self._numbers[pose] = len(self.ops)
            self.histories.append(history)
            self.ops.append(call.op)
            self.cancelled.append(call.cancelled)
            self.names.append(call.name)
            self.tokens.append(frozenset(re.findall(r"'(t\d+)'", repr(pose))))
        return Move(self._numbers[pose])
