"""T38: The model rewords a note

What: the same order is paid again with another sentence in a free text.
Why: Models never say it twice alike.
Right: one effect. To be told of a conflict is right, too.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "The model rewords a note"
TEMPERAMENTS = ("deaf",)
NEEDS = ("business_key",)
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1", note="Sorry for the delay")
    again = Wish(name="pay again", order="o1", note="We are sorry that it was late")
    worker = stage.start()
    worker.call(wish)
    stage.settle(again)
    told = frozenset({"done", "happened", "conflict"})
    return [
        stage.expect(wish, knowable=True, faults=0),
        stage.expect(again, ends=told, knowable=True),
    ]
