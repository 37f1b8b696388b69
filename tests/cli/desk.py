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
import sysconfig
import tempfile
import termios
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from effectonce.cli import main as effectonce

# each process would compile everything again
COMPILED = tempfile.mkdtemp(prefix="effectonce-test-pyc-")
ROOT = Path(__file__).parent.parent.parent
APPS = {f"tests.cli.{path.stem}" for path in Path(__file__).parent.glob("[a-z]*.py")} - {
    "tests.cli.conftest",
    "tests.cli.desk",
}
INSTALLED = (str(ROOT / "src"), sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"))
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


def run_in_process(arguments, environ, folder, text):
    """Run a command with an environment and a folder of its own, and apps imported anew."""
    with (
        mock.patch.dict(os.environ, environ, clear=True),
        contextlib.chdir(folder),
        mock.patch.object(sys, "path", [*sys.path]),
        no_app_imported(),
    ):
        result = CliRunner().invoke(effectonce, arguments, input=text, prog_name="effectonce")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return subprocess.CompletedProcess(arguments, result.exit_code, result.stdout, result.stderr)


@contextlib.contextmanager
def no_app_imported():
    """Let a command import its app as a new process does: an app opens its store when imported."""
    before = dict(sys.modules)
    for name in APPS & before.keys():
        del sys.modules[name]
    try:
        yield
    finally:
        for name in sys.modules.keys() - before.keys():
            file = getattr(sys.modules[name], "__file__", None) or ""
            if not file.startswith(INSTALLED):
                del sys.modules[name]
        for name in APPS & before.keys():
            sys.modules[name] = before[name]
            setattr(sys.modules["tests.cli"], name.rpartition(".")[2], before[name])


class Desk:
    """A folder and a store to work at."""

    def __init__(self, folder, url):
        self.folder, self.url = folder, url

    def here(self):
        return {"EFFECTONCE_STORE": self.url, "SHOP_STORE": self.url}

    def run(self, *arguments, text=None, width=100, new_process=False, preexec_fn=None, **environ):
        """On pipes. Nobody can be asked.

        The command runs in this process, unless it needs what only a new one has: other modules
        to import, fewer rights, or logging that nobody has set up.
        """
        changed = {**self.here(), "COLUMNS": str(width), **environ}
        if not (new_process or preexec_fn or "PYTHONPATH" in environ):
            return run_in_process(arguments, environment(**changed), self.folder, text)
        given = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
        return subprocess.run(
            [sys.executable, "-m", "effectonce.cli", *arguments],
            capture_output=True,
            text=True,
            env=environment(**changed),
            cwd=self.folder,
            check=False,
            timeout=60,
            preexec_fn=preexec_fn,
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
