"""A TCP proxy in front of any server: it notes what clients send, and loses or holds back
answers when it is told to.
"""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.servers.listener import hang_up


class Proxy:
    """Listens on a free port of this machine. `target` is the path of a socket, or a host and a
    port.
    """

    def __init__(self, target):
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.sent = []  # for each connection: the bytes that its client sent
        self._open = []
        self._passing = threading.Event()
        self._passing.set()
        self._loses = self._drops = self._holds = self._breaks = None
        self.round_trips = 0  # how often a client spoke after it had been answered
        self.lost, self.held = threading.Event(), threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._passing.set()
        hang_up(self._listener)  # or else whoever waits in accept() lets one more in
        self._listener.close()
        self.cut()

    def stall(self):
        """Hold every answer back."""
        self._passing.clear()

    def flow(self):
        self._passing.set()

    def lose_the_answer_to(self, word):
        """Once: pass on the next request that contains *word*, wait until the server has
        answered it, and hang up instead.
        """
        self.lost.clear()
        self._loses = word

    def lose_the_request_with(self, word):
        """Once: hang up instead of passing on the next request that contains *word*."""
        self.lost.clear()
        self._drops = word

    def break_off_the_request_with(self, word):
        """Once: pass on half of the next request that contains *word*, and hang up when the
        server has read it.
        """
        self.lost.clear()
        self._breaks = word

    def hold_the_answer_to(self, word):
        """Once: pass on the next request that contains *word*, and never answer on that
        connection again.
        """
        self._holds = word

    def cut(self):
        """Hang up on everybody."""
        for each in self._open:
            hang_up(each)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        unix = not isinstance(self._target, tuple)
        server = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
        with client, server, contextlib.suppress(OSError):
            server.connect(str(self._target) if unix else self._target)
            self._open += [client, server]
            losing, held, answered, sent = (
                threading.Event(),
                threading.Event(),
                threading.Event(),
                bytearray(),
            )
            answered.set()
            self.sent.append(sent)
            back = threading.Thread(
                target=self._answers, args=(server, client, losing, held, answered), daemon=True
            )
            back.start()
            while chunk := client.recv(1 << 16):
                sent += chunk
                self.round_trips += answered.is_set()
                answered.clear()
                if self._drops is not None and self._drops in chunk:
                    self._drops = None
                    self.lost.set()
                    break
                if self._breaks is not None and self._breaks in chunk:
                    self._breaks = None
                    losing.set()
                    self.lost.set()
                    server.sendall(chunk[: len(chunk) // 2])
                    break
                if self._loses is not None and self._loses in chunk:
                    self._loses = None
                    losing.set()
                if self._holds is not None and self._holds in chunk:
                    self._holds = None
                    held.set()
                    self.held.set()
                server.sendall(chunk)
            server.shutdown(socket.SHUT_WR)
            back.join()

    def _answers(self, server, client, losing, held, answered):
        with contextlib.suppress(OSError):
            while chunk := server.recv(1 << 16):
                if losing.is_set():
                    self.lost.set()
                    break
                self._passing.wait()
                if held.is_set():
                    continue
                answered.set()
                client.sendall(chunk)
        hang_up(client)
        hang_up(server)
