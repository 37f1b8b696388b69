"""The scripts that run inside Redis."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path


class Script:
    """Lua files in a row. What ordinary calls need is first: each run makes the functions anew."""

    def __init__(self, *names: str) -> None:
        folder = Path(__file__).parent / "lua"
        self.source = b"".join((folder / f"{name}.lua").read_bytes() for name in ("head", *names))
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest().encode()


BEAR, FINISH, DUE = Script("bear", "record", "birth"), Script("finish"), Script("due")
SEE, SWAP, ENTER = Script("record", "see"), Script("record", "swap"), Script("record", "enter")
PAGE, BIRTHS, ALIKE = Script("order", "page"), Script("order", "births"), Script("order", "alike")
SEE_CELL, SWAP_CELL = Script("cell", "see_cell"), Script("cell", "swap_cell")
