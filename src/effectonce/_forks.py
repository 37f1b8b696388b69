"""What must not cross a fork: a lock that a thread of the parent holds is never released in the
child, where there is no such thread.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """Something with a lock of its own."""

    def after_fork(self) -> None:
        """Begin anew in a child, before any of its threads does."""


_KNOWN: weakref.WeakSet[Forked] = weakref.WeakSet()


def anew_in_a_fork(thing: Forked) -> None:
    """Let it know of every fork, for as long as it lives."""
    _KNOWN.add(thing)


def _after_fork() -> None:
    for thing in list(_KNOWN):
        thing.after_fork()


os.register_at_fork(after_in_child=_after_fork)
