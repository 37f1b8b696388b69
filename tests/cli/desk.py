"""Run the command as people and scripts do: in a process of its own, on a pipe or on a terminal,
away from this user's settings.
"""

import codecs
import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

# each process would compile everything again
COMPILED = tempfile.mkdtemp(prefix="effectonce-test-pyc-")
ROOT = Path(__file__).parent.parent.parent
QUIET = {
    "NO_COLOR": "1",
    "COLUMNS": "100",
    "TERM": "xterm",
    "XDG_CONFIG_HOME": "/nonexistent",
    "LOGNAME": "ada",
    "USER": "ada",
}


def environment(**changes):
    clean = {
        n: v
        for n, v in os.environ.items()
        if not n.startswith("EFFECTONCE_") or n in ("EFFECTONCE_SPOOL", "EFFECTONCE_RECONCILE")
    }
    clean.pop("PYTHONDONTWRITEBYTECODE", None)
    paths = os.pathsep.join(
        path for path in (str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")) if path
    )
    return {**clean, **QUIET, "PYTHONPATH": paths, "PYTHONPYCACHEPREFIX": COMPILED, **changes}


class Desk:
    """A folder and a store to work at."""

    def __init__(self, folder, url):
        self.folder, self.url = folder, url

    def here(self):
        return {"EFFECTONCE_STORE": self.url, "SHOP_STORE": self.url}

    def run(self, *arguments, text=None, width=100, preexec_fn=None, **environ):
        """On pipes. Nobody can be asked."""
        environ = environment(**{**self.here(), "COLUMNS": str(width), **environ})
        command = [sys.executable, "-m", "effectonce.cli", *arguments]
        given = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
        given["preexec_fn"] = preexec_fn
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environ,
            cwd=self.folder,
            check=False,
            timeout=60,
            **given,
        )

    def json(self, *arguments, **environ):
        """What a program gets."""
        done = self.run(*arguments, "--json", **environ)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def start(self, *arguments, **environ):
        """Begin a command that goes on while the test does something else."""
        return subprocess.Popen(
            [sys.executable, "-m", "effectonce.cli", *arguments],
            cwd=self.folder,
            env=environment(**{**self.here(), **environ}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def terminal(self, *arguments, dialogue=(), between=None, width=100, **environ):
        """On a terminal: wait for each text, then type the answer. Returns the exit code and the
        screen.
        """
        environ = {
            name: value
            for name, value in environment(**{**self.here(), **environ}).items()
            if name != "COLUMNS"
        }
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
        command = [sys.executable, "-m", "effectonce.cli", *arguments]
        with subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environ, cwd=self.folder
        ) as process:
            os.close(slave)
            # a character may come in two pieces
            screen, decode = "", codecs.getincrementaldecoder("utf-8")().decode
            for awaited, answer in dialogue:
                while awaited not in screen:
                    screen += decode(os.read(master, 4096))
                if between is not None:
                    between()
                os.write(master, f"{answer}\n".encode())
            with contextlib.suppress(OSError):  # a terminal that nobody has open any more
                while more := os.read(master, 4096):
                    screen += decode(more)
        os.close(master)
        return process.returncode, screen.replace("\r\n", "\n")


def undated(text):
    """Moments and spans of time differ from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{3})?", "DATE", text)
    text = re.sub(r"\+\d\.\d{3} s", "+0.000 s", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "DATE", text)
