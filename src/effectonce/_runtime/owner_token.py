"""Tokens that no other owner of an effect has."""

from __future__ import annotations

import itertools
import os


class _Tokens:
    """128 random bits for each process, and a count. A fork draws its own."""

    def __init__(self) -> None:
        self.draw()
        os.register_at_fork(after_in_child=self.draw)

    def draw(self) -> None:
        self._process, self._count = os.urandom(16).hex(), itertools.count()

    def __call__(self) -> str:
        return f"{self._process}-{next(self._count)}"


new_token = _Tokens()
