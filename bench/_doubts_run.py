"""Runs the cells of one subject of doubts.py, in a process of its own, and prints what became of
each.

    python bench/_doubts_run.py SUBJECT PORT FOLDER FAULT...

Some peers keep their set-up in globals of the process, and a peer that hangs can be ended.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path

import _doubts_more
import _doubts_ours
import _doubts_peers
from _doubts_bank import Bank
from _doubts_cells import cells, run


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    name, port, folder, *faults = sys.argv[1:]
    bank = Bank(int(port))
    subject = (_doubts_ours.SUBJECTS | _doubts_peers.SUBJECTS | _doubts_more.SUBJECTS)[name](
        Path(folder), bank
    )
    print(json.dumps([run(subject, cell, bank) for cell in cells(faults)]))


if __name__ == "__main__":
    main()
