"""A bounded memory of outcomes, so that a repeated replay costs no I/O.

Only terminal records go in, never an absence: a known outcome does not change, and an unknown
one must be asked for. An entry ages from what the store returned when it was read, and it is
dropped when its window ends, judged by the monotonic clock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from effectonce._core.endings import Ending, Fresh, Replay
from effectonce._core.ops import Recorded
from effectonce._core.record import Request, State
from effectonce._forks import anew_in_a_fork

# a larger one is asked for again: the memory is bounded by its size as well as by its number
OUTCOME_BYTES_MAX = 16_384


class ReplayCache:
    """The outcomes that this process has seen most recently."""

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self.size, self._clock = size, clock
        self._entries: OrderedDict[str, tuple[str, Recorded, float, float]] = OrderedDict()
        self.after_fork()
        anew_in_a_fork(self)

    def after_fork(self) -> None:
        self._lock = threading.RLock()

    def get(self, key: str, fingerprint: str) -> Recorded | None:
        """The outcome of exactly this request, if it is remembered and its window is still open."""
        entry = self._entries.get(key)
        if entry is None or entry[0] != fingerprint or (now := self._clock()) >= entry[2]:
            return None
        recorded = entry[1]
        return recorded if recorded.state is State.COMPLETED else _aged(recorded, entry[3], now)

    def put(self, key: str, fingerprint: str, recorded: Recorded) -> None:
        """Remember an outcome that the store has just returned."""
        if self.size == 0 or len(recorded.outcome) > OUTCOME_BYTES_MAX:
            return
        with self._lock:
            now = self._clock()
            self._entries.pop(key, None)  # the last to come is the last to go
            self._entries[key] = (fingerprint, recorded, now + recorded.remaining_s, now)
            if len(self._entries) > self.size:
                self._entries.popitem(last=False)

    def remember(self, request: Request, ending: Ending, window_s: float) -> None:
        """How a call ended, if that is an outcome that stays."""
        match ending:
            case Replay(recorded) if recorded.remaining_s > 0:
                self.put(request.key, request.fingerprint, recorded)
            case Fresh(recorded=True, outcome=outcome) if outcome:
                remembered = Recorded(State.COMPLETED, outcome, 0.0, window_s, ending.settled_by)
                self.put(request.key, request.fingerprint, remembered)


def _aged(recorded: Recorded, put_at: float, now: float) -> Recorded:
    """A failure that is shown again says how long ago it was."""
    passed_s = now - put_at
    age_s, remaining_s = recorded.age_s + passed_s, recorded.remaining_s - passed_s
    return Recorded(recorded.state, recorded.outcome, age_s, remaining_s, recorded.settled_by)
