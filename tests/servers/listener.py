"""A TCP server in this process, of which nothing is left when it is closed: what would be left
is blamed on the next test.
"""

from __future__ import annotations

import contextlib
import socket
import threading


class Listener:
    """Listens on a free port of this machine, and has *serve* talk to each connection in a
    thread of its own.
    """

    def __init__(self, serve):
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._talks = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        hang_up(self._socket)  # closing it would not wake who waits in accept()
        self._accepting.join()
        self._socket.close()
        for line, talk in self._talks:
            hang_up(line)
            talk.join()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._socket.accept()
                talk = threading.Thread(target=self._talk, args=(line,), daemon=True)
                self._talks.append((line, talk))
                talk.start()

    def _talk(self, line):
        with line, contextlib.suppress(OSError):
            self._serve(line)


def hang_up(line):
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
