"""T06b: The same key, another amount, after a crash

What: a process dies after the service did it. The next process asks for another amount.
Why: Agents that restart decide again.
Right: no second effect.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "The same key, another amount, after a crash"
TEMPERAMENTS = ("deaf", "keys")
NEEDS = ("business_key", "conflict")
QUICK = False


def play(stage: Stage) -> list[Expected]:
    first = Wish(name="first", order="o1", amount=100)
    other = Wish(name="other", order="o1", amount=250)
    worker = stage.start()
    stage.arm("kill after", first, worker)
    worker.call(first)
    stage.let_leases_end()
    stage.settle(other)
    ends = frozenset({"conflict", "happened", "unknown", "busy"})
    return [stage.expect(other, ends=ends, knowable=False)]
