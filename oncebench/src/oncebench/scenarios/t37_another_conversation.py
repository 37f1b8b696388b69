"""T37: The same wish from another conversation

What: the context was compacted, or the chat began anew; the agent wants the same order paid
again.
Why: Ids of conversations and tool calls change; what is wanted does not.
Right: one effect.
"""

from __future__ import annotations

from oncebench.checker import Expected
from oncebench.kit import Wish
from oncebench.stage import Stage

TITLE = "The same wish from another conversation"
TEMPERAMENTS = ("deaf",)
NEEDS = ("business_key",)
QUICK = False


def play(stage: Stage) -> list[Expected]:
    wish = Wish(name="pay", order="o1")
    worker = stage.start()
    worker.call(wish)
    stage.settle(Wish(name="pay", order="o1", run="chat-2"))
    return [stage.expect(wish, knowable=True)]
