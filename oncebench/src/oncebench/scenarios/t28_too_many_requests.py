"""T28: 429, then it would work

What: the service says 429 and does nothing. The next request would be served.
Why: A refusal that is kept as the result is replayed for ever.
Right: one effect, no person.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "429, then it would work"
TEMPERAMENTS = ("deaf",)
NEEDS = ()
QUICK = True


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    stage.arm("429 before", wish)
    worker.call(wish)
    stage.settle(wish)
    return [stage.expect(wish, knowable=True)]
