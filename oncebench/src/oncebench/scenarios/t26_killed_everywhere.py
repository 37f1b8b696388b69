"""T26: Killed at its system calls

What: the process is killed (SIGKILL) at sends, receives and writes to disk of a call, up to half
of them before the request leaves, and a new process calls again.
Why: Every order of "write it down" and "do it" has a gap.
Right: no second effect; a person only where a byte had left and nothing can be asked.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage
from oncebench.syscalls import TRIES, Point

TITLE = "Killed at its system calls"
TEMPERAMENTS = ("deaf", "asks", "keys", "transaction")
NEEDS = ()
QUICK = True


def play(stage: Stage) -> list[Expected]:
    warm = stage.start()
    warm.call(Wish(name="warm", order="warm"))
    points = stage.kill_points(Wish(name="watched", order="watched"))
    killed = [found for n, point in enumerate(points) if (found := _killed(stage, n, point))]
    landed = {effect.order for effect in stage.counted()}
    stage.let_leases_end()
    fresh = stage.start()
    for wish, _ in killed:
        stage.settle(wish, worker=fresh, tries=2)
    return [
        stage.expect(wish, knowable=stage.knowable or not (left or wish.order in landed))
        for wish, left in killed
    ]


def _killed(stage: Stage, number: int, point: Point) -> tuple[Wish, bool] | None:
    """The wish whose process was killed there, and whether its request may have left. A process
    that does not come by this time is no fault: its trace says where to kill the next.
    """
    for again in range(TRIES):
        wish = Wish(name=f"{number} {point}", order=f"k{number}-{again}")
        killed = stage.killed_at(point, wish)
        if isinstance(killed, bool):
            return wish, killed
        if killed is None:
            return None
        point = killed
    return None
