"""A forked program behaves like one that `subprocess` starts."""

import os
import signal
import subprocess
import sys

import pytest
from tests import forkserver

PROGRAMS = {
    "arguments": "import sys; print(sys.argv)",
    "folder": "import os; print(os.getcwd())",
    "environment": "import os; print(sorted(n for n in os.environ if n != 'LC_CTYPE'))",
    "search path": "import sys; print(sys.path[:2])",
    "input": "print(input())",
    "parent": "import os; print(os.getppid())",
    "session": "import os; print(os.getsid(0))",
    "both streams": "import sys; print('out'); print('err', file=sys.stderr)",
    "exit code": "import sys; sys.exit(3)",
    "exit message": "import sys; sys.exit('no')",
    "exception": "1 / 0",
    "exit handler": "import atexit; atexit.register(print, 'bye')",
    "thread at the end": "import threading; threading.Timer(0.01, print, ['late']).start()",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "interrupted": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "import": "from effectonce import Guard; print(Guard.__module__)",
}
pytestmark = pytest.mark.skipif(forkserver.CLONE is None, reason="the number of clone is unknown")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_forked_program_ends_as_a_started_one(program, tmp_path):
    def ended(popen):
        process = popen(
            [sys.executable, "-c", PROGRAMS[program], "one", "two"],
            cwd=tmp_path,
            env={**os.environ, "GIVEN": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        output, errors = process.communicate("hello\n")
        return process.returncode, output, errors

    assert ended(forkserver.Popen) == ended(forkserver.StandardPopen)


def test_a_script_and_a_module_run_as_main(tmp_path):
    (tmp_path / "program.py").write_text("if __name__ == '__main__': print(__file__)")

    for words in (["program.py"], ["-m", "program"]):
        shown = [
            popen([sys.executable, *words], cwd=tmp_path, stdout=subprocess.PIPE).communicate()
            for popen in (forkserver.Popen, forkserver.StandardPopen)
        ]
        assert shown[0] == shown[1] != (b"", None)


def test_a_forked_program_is_stopped_and_killed_by_its_pid():
    with forkserver.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        process.kill()

    assert process.returncode == -signal.SIGKILL


def test_a_session_of_its_own():
    command = [sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"]

    shown = subprocess.run(command, start_new_session=True, capture_output=True, check=True)

    assert shown.stdout == b"True\n"
