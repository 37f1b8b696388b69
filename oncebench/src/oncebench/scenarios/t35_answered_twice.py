"""T35: A pause that is answered twice

What: a call waits for a person, who says yes. The process that goes on dies when it has happened.
The person is asked nothing, but says yes once more, and the next process goes on.
Why: A double click, or a message that is delivered twice, is no second approval.
Right: one effect, as in T43: by the key, or by asking. Where nothing can know, its caller is told
so.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "A pause that is answered twice"
TEMPERAMENTS = ("deaf", "asks", "keys")
NEEDS = ("approval",)
QUICK = True


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    worker.call(wish)
    stage.arm("kill after", wish, worker)  # before the yes: an engine's call goes on by itself
    worker.approve(wish)
    worker.call(wish)
    stage.let_leases_end()
    again = stage.start()
    again.approve(wish)
    stage.settle(wish, worker=again)
    return [stage.expect(wish)]
