"""T26: Killed at every system call

What: the process is killed (SIGKILL) at each send, receive and write to disk of a call, one
after the other, and a new process calls again.
Why: Every order of "write it down" and "do it" has a gap.
Right: no second effect; a person only where a byte had left and nothing can be asked.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "Killed at every system call"
TEMPERAMENTS = ("deaf", "asks", "keys", "transaction")
NEEDS = ()
QUICK = True


def play(stage: Stage) -> list[Expected]:
    warm = stage.start()
    warm.call(Wish(name="warm", order="warm"))
    points = stage.kill_points(Wish(name="watched", order="watched"))
    wishes = [Wish(name=f"{n} {point}", order=f"k{n}") for n, point in enumerate(points)]
    left = [stage.killed_at(*each) for each in zip(points, wishes, strict=True)]
    landed = {effect.order for effect in stage.counted()}
    stage.let_leases_end()
    for wish in wishes:
        stage.settle(wish, worker=warm, tries=2)
    return [
        stage.expect(wish, knowable=_knowable(stage, left=sent, happened=wish.order in landed))
        for sent, wish in zip(left, wishes, strict=True)
    ]


def _knowable(stage: Stage, *, left: bool, happened: bool) -> bool:
    """Where no byte has left, it is known. A service that finds nothing proves nothing: the
    request may still land.
    """
    if not left and not happened:
        return True
    if stage.temperament == "asks":
        return happened
    return stage.temperament in {"keys", "transaction"}
