"""T34: Other arguments than the approved

What: a person approves 100. The agent decides again, and goes on with 900; and once more.
Why: An approval of a call, and not of its arguments, is an approval of anything.
Right: 900 is not sent: the caller is told that it waits, or that it is another call. Neither of
them is an approval for the next try.
"""

from __future__ import annotations

from dataclasses import replace

from oncebench.checker import UNSENT, Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "Other arguments than the approved"
TEMPERAMENTS = ("deaf",)
NEEDS = ("approval", "changed_arguments")
QUICK = True


def play(stage: Stage) -> list[Expected]:
    approved = Wish(name="approved", order="o1", amount=100)
    changed = replace(approved, name="changed", amount=900)
    worker = stage.start()
    worker.call(approved)
    worker.approve(approved)
    stage.settle(changed)
    stage.settle(changed)
    return [stage.expect(changed, amount=900, effects=0, ends=UNSENT, knowable=True)]
