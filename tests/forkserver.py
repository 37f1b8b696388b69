"""Start Python processes for tests by forking a warm one: 0.05 s instead of 0.4 s.

Each pytest process has one fork server: an interpreter without threads that has imported
effectonce and the libraries that most tests use. `install()` replaces `subprocess.Popen`, so tests
start processes as usual. `python -m MODULE`, `python -c CODE` and `python SCRIPT` are forked from
the server; every other command, and `python` with an option of the interpreter, starts as usual.
Code that looks at `sys.modules` also starts as usual: it is about imports. A test about memory or
the end of an interpreter passes an option such as `-b`.

The server forks with CLONE_PARENT: the new process is a child of pytest, not of the server. SIGKILL,
`wait`, process groups and pids therefore work as they do with `subprocess`. The child ends after its
exit handlers: it does not tear down its modules, which takes longer than most programs of a test.

Python has no call for CLONE_PARENT and `clone` has another number on each kind of machine. On a
machine that is not listed here, and with EFFECTONCE_TEST_FORKSERVER=off, all processes start as
usual.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import platform
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

CLONE_NUMBERS = {"x86_64": 56, "aarch64": 220}
CLONE_PARENT = 0x8000
CLONE = CLONE_NUMBERS.get(platform.machine())
WARM_MODULES = (
    "asyncio",
    "argparse",
    "concurrent.futures.thread",
    "http.server",
    "httpx",
    "multiprocessing",
    "rich.console",
    "rich.table",
    "rich.text",
    "sqlite3",
    "ssl",
    "uuid",
    "tomllib",
    "platformdirs.unix",
    "effectonce",
    "effectonce.guard",
    "effectonce.http.client",
    "effectonce.stores.memory",
    "effectonce.stores.sqlite",
    "effectonce.testing",
    "effectonce.testing.bank",
    "effectonce.views.status",
)
# The interpreter and the C library read these when they start.
READ_AT_START = {
    "COVERAGE_PROCESS_START",
    "FAKETIME",
    "LD_PRELOAD",
    "PYTHONDEVMODE",
    "PYTHONHASHSEED",
    "PYTHONIOENCODING",
    "PYTHONMALLOC",
    "PYTHONOPTIMIZE",
    "PYTHONTRACEMALLOC",
    "PYTHONUTF8",
    "PYTHONWARNINGS",
}


# ---------------------------------------------------------------- in the tests


class ForkServer:
    """The server of one pytest process."""

    def __init__(self):
        self.owner_pid = os.getpid()
        self._lock = threading.Lock()
        self._socket, server_end = socket.socketpair()
        command = [sys.executable, __file__, str(server_end.fileno())]
        with server_end:
            self._process = StandardPopen(
                command, pass_fds=[server_end.fileno()], stdin=subprocess.DEVNULL
            )
        atexit.register(self.close)

    def close(self):
        """End the server, unless this is a fork of the process that started it."""
        if self.owner_pid == os.getpid():
            self._socket.close()
            self._process.kill()
            self._process.wait()

    def fork(self, request, descriptors):
        """Return the pid of a new child that runs the request on these three descriptors."""
        body = json.dumps(request).encode()
        with self._lock:
            socket.send_fds(self._socket, [struct.pack("!Q", len(body))], descriptors)
            self._socket.sendall(body)
            return struct.unpack("!i", _receive(self._socket, 4))[0]


StandardPopen = subprocess.Popen
_servers = []
_starting = threading.Lock()


def fork_server():
    """Return the server of this process: a forked test process must not use its parent's."""
    with _starting:
        if not _servers or _servers[0].owner_pid != os.getpid():
            _servers[:] = [ForkServer()]
        return _servers[0]


class Popen(StandardPopen):
    """`subprocess.Popen` that forks Python programs from the server of this process."""

    def _execute_child(
        self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
        creationflags, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite,
        restore_signals, gid, gids, uid, umask, start_new_session, process_group,
    ):  # fmt: skip
        words = [args] if isinstance(args, str | bytes | os.PathLike) else list(args)
        words = [os.fsdecode(word) for word in words]
        environment = os.environ if env is None else env
        environment = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
        unusual = (
            preexec_fn or shell or pass_fds or executable or gid or gids or uid or not close_fds
        )
        if (
            unusual
            or umask != -1
            or process_group != -1
            or not _is_program(words)
            or READ_AT_START & environment.keys()
        ):
            super()._execute_child(
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
                creationflags, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite,
                restore_signals, gid, gids, uid, umask, start_new_session, process_group,
            )  # fmt: skip
            return
        sys.audit("subprocess.Popen", words[0], args, cwd, env)
        folder = Path.cwd() if cwd is None else Path(os.fsdecode(cwd))
        if not folder.is_dir():
            raise FileNotFoundError(folder)
        request = {
            "words": words[1:],
            "folder": str(folder),
            "environment": environment,
            "new_session": start_new_session,
        }
        descriptors = [
            standard if given == -1 else given
            for standard, given in ((0, p2cread), (1, c2pwrite), (2, errwrite))
        ]
        self.pid = fork_server().fork(request, descriptors)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


def _is_program(words):
    """Tell whether a command is `python` with a module, code or a script, without options."""
    if len(words) < 2 or words[0] != sys.executable:
        return False
    if words[1] == "-c":
        return "sys.modules" not in words[2]
    return words[1] == "-m" or words[1].endswith(".py")


def install():
    """Let this pytest process start Python programs by forking."""
    if CLONE is not None and os.environ.get("EFFECTONCE_TEST_FORKSERVER") != "off":
        subprocess.Popen = Popen


# ---------------------------------------------------------------- in the server


def serve(connection):
    """Fork a child for each request, until pytest ends. Return the request in the child only."""
    system_calls = ctypes.PyDLL(None)  # PyDLL keeps the GIL: the child must hold it
    while True:
        try:
            head, descriptors, _, _ = socket.recv_fds(connection, 8, 3)
        except ConnectionError:
            os._exit(0)
        if not head:
            os._exit(0)
        head += _receive(connection, 8 - len(head))
        request = json.loads(_receive(connection, struct.unpack("!Q", head)[0]))
        system_calls.PyOS_BeforeFork()
        pid = system_calls.syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            system_calls.PyOS_AfterFork_Child()
            connection.close()
            _become(request, descriptors)
            return request["words"]
        system_calls.PyOS_AfterFork_Parent()
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(struct.pack("!i", pid))


def _receive(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the other end of the fork server is gone")
        data += more
    return data


def _become(request, descriptors):
    """Give this process the session, folder, environment and streams of the request."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    if request["new_session"]:
        os.setsid()
    os.chdir(request["folder"])
    for name in os.environ.keys() - request["environment"].keys():
        del os.environ[name]
    os.environ.update(request["environment"])
    time.tzset()
    interactive = os.isatty(1)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1 if interactive else -1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    given = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in given if path and path not in sys.path]


def _run(words):
    """Run the program as `python` does. Return its exit code."""
    try:
        _execute(words)
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        sys.stderr.write(f"{error.code}\n")
        return 1
    except BaseException as error:  # an interpreter reports every exception
        error.__traceback__ = _frames_of_the_program(error)
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            return -signal.SIGINT
        return 1
    return 0


def _frames_of_the_program(error):
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _execute(words):
    kind, *arguments = words
    if kind == "-m":
        sys.argv = arguments
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    if kind == "-c":
        sys.argv = ["-c", *arguments[1:]]
        sys.path.insert(0, "")
        exec(compile(arguments[0], "<string>", "exec"), main.__dict__)
        return
    script = Path(kind).absolute()
    sys.argv = words
    sys.path.insert(0, str(script.resolve().parent))
    main.__file__ = str(script)
    exec(compile(script.read_bytes(), script, "exec"), main.__dict__)


def _exit(code):
    """End this process with a code, or by a signal, after its threads and exit handlers."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def main():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    del sys.path[0]  # the folder of this file
    connection = socket.socket(fileno=int(sys.argv[1]))
    from effectonce import cli

    commands = [f"effectonce.cli.{name}" for name in cli.COMMANDS]
    for name in (*WARM_MODULES, *commands):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    _exit(_run(serve(connection)))


if __name__ == "__main__":
    main()
