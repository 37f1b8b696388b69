"""Dead letters: what gave up or cannot go on. Nothing is ever dropped: a letter ends when its
effect has an outcome.

    for letter in guard.dead_letters.list(tool="refund"):
        print(letter.reference, letter.effect_state, letter.error)

A letter is a record without an outcome, so redriving one is calling the tool again, with the
stored arguments, under the same key, through the same flow as every call. That is why a double
redrive is one effect, and why an effect in doubt stays one unless its probe settles it.
"""

from effectonce._core.attempt_log import FailedAttempt, RedriveRequest
from effectonce.dead_letters._file import Imported, LineProblem
from effectonce.dead_letters._letter import Letter, Wanted
from effectonce.dead_letters._letters import DeadLetters, Distribution, Group
from effectonce.dead_letters._redriving import Redriven

__all__ = [
    "DeadLetters",
    "Distribution",
    "FailedAttempt",
    "Group",
    "Imported",
    "Letter",
    "LineProblem",
    "RedriveRequest",
    "Redriven",
    "Wanted",
]
