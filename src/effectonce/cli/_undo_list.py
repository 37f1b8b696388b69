"""The list of what a command settled: a file that tells the truth, also after a kill.

Each effect has a line before it is settled, `trying`, and one with what came of it. Where the
second is missing, the command was killed between them: `effectonce effect show` has the answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from effectonce._core.effect_ref import effect_of
from effectonce._core.record import Record
from effectonce.cli._exits import NOT_ALLOWED, Stop
from effectonce.views.text import dumps
from effectonce.views.times import iso

SCHEMA = "effectonce.settlement/1"


class UndoList:
    """An open file. A line is written at once."""

    def __init__(self, file: IO[str], **always: Any) -> None:
        self._file, self._always = file, always

    def write(self, record: Record, **data: Any) -> None:
        """What is done with the effect of a record, or was."""
        effect = effect_of(record)
        about = {"reference": effect.reference, "tool": effect.tool, "tenant": effect.tenant}
        line = {"schema": SCHEMA, "at": iso(time.time()), **self._always, **about, **data}
        self._file.write(dumps(line) + "\n")
        self._file.flush()


def default_name(act: str) -> Path:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return Path(f"effectonce-{act}-{moment}-{os.getpid()}.jsonl")


@contextmanager
def undo_list(path: Path, **always: Any) -> Iterator[UndoList]:
    """A new file for its owner alone. One that is there is not overwritten."""
    try:
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Stop(
            f"{path} cannot be written: {error.strerror}.",
            NOT_ALLOWED,
            "Nothing was changed. Name another file with --undo-list.",
        ) from None
    with os.fdopen(made, "w", encoding="utf-8") as file:
        yield UndoList(file, **always)
