"""T05: The tool fails before it sends

What: the tool raises ValueError before its first byte leaves. The next call of it is good.
Why: The record of a call that did nothing must not stop the next one.
Right: one effect, no person: nothing had left.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "The tool fails before it sends"
TEMPERAMENTS = ("deaf", "transaction")
NEEDS = ()
QUICK = True


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1", first="raise")
    worker = stage.start()
    worker.call(wish)
    stage.settle(wish)
    return [stage.expect(wish, knowable=True)]
