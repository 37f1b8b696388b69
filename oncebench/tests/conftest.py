"""The kit's own tests run on its source, wherever pytest is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests import forkserver

SOURCE = str(Path(__file__).parent.parent / "src")
sys.path.insert(0, SOURCE)
forkserver.install()
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH")]))
