"""What this process has shown: a link on a page leads to its effect without a search, however large the store is."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from effectonce._core.records import Record
from effectonce.effect import reference_of

if TYPE_CHECKING:
    from effectonce import Guard

KNOWN_MAX = 20_000


class Seen:
    """Keys by their references, as many as were shown lately. Two effects of one reference are not told apart here."""

    def __init__(self, known_max: int = KNOWN_MAX) -> None:
        self._keys: OrderedDict[str, str] = OrderedDict()
        self._lock, self._known_max = threading.Lock(), known_max

    def add(self, records: Iterable[Record]) -> None:
        with self._lock:
            for record in records:
                key = record.request.key
                reference = reference_of(key)
                self._keys[reference] = key if self._keys.get(reference, key) == key else ""
                self._keys.move_to_end(reference)
            while len(self._keys) > self._known_max:
                self._keys.popitem(last=False)

    def key(self, reference: str) -> str:
        """Nothing, if it was not shown."""
        return self._keys.get(reference, "")


_SEEN: weakref.WeakKeyDictionary[Guard, Seen] = weakref.WeakKeyDictionary()


def seen_of(guard: Guard) -> Seen:
    return _SEEN.setdefault(guard, Seen())
