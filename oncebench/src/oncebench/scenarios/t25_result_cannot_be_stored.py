"""T25: A result that cannot be stored

What: the tool did it, and returns what no store can keep. It is called again.
Why: A failure to save is not a failure of the effect.
Right: no second effect. What is said of the result may be anything but false.
"""

from __future__ import annotations

from oncebench.checker import HAPPENED, Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "A result that cannot be stored"
TEMPERAMENTS = ("deaf", "transaction")
NEEDS = ()
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1", unstorable=True)
    worker = stage.start()
    worker.call(wish)
    stage.settle(wish)
    if stage.temperament == "transaction":  # it may also be taken back, and the caller hears so
        return [stage.expect(wish, ends=HAPPENED | {"raised", "failed"}, knowable=False)]
    return [stage.expect(wish, knowable=False)]
