"""A disk whose syncs take as long as those of a cloud disk: the same program again, with a
library in front of libc's.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_FOLDER = "EFFECTONCE_BENCH_SLOW_DISK"
_LIBRARY = """
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int slowly(long call, int fd) {
    struct timespec rest = { MICROSECONDS / 1000000, MICROSECONDS % 1000000 * 1000 };
    nanosleep(&rest, 0);
    return syscall(call, fd);
}
int fsync(int fd) { return slowly(SYS_fsync, fd); }
int fdatasync(int fd) { return slowly(SYS_fdatasync, fd); }
"""


def slow_down(sync_ms: float) -> None:
    """Begin this program again, so that every sync of it, and of the servers that it starts,
    takes *sync_ms* longer.
    """
    if _FOLDER in os.environ:
        atexit.register(shutil.rmtree, os.environ[_FOLDER])
        return
    if sync_ms <= 0:
        return
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("a slower disk needs a C compiler: apt-get install gcc")
    folder = Path(tempfile.mkdtemp(prefix="effectonce-slow-disk-"))
    folder.chmod(0o755)  # servers run as somebody else
    library = folder / "slow_disk.so"
    macro = f"-DMICROSECONDS={round(sync_ms * 1000)}L"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-x", "c", "-", macro, "-o", library],
        input=_LIBRARY,
        text=True,
        check=True,
    )
    os.execve(
        sys.executable,
        [sys.executable, *sys.argv],
        os.environ | {"LD_PRELOAD": str(library), _FOLDER: str(folder)},
    )
