"""A TCP proxy that counts round trips and loses what it is told to lose. It knows nothing of what it carries."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress


class Proxy:
    """Between a client and *upstream*, which is a (host, port) or the path of a unix socket."""

    def __init__(self, upstream):
        self.upstream = upstream
        self.round_trips = 0  # how often the client spoke after it had been answered
        self.lose_reply = self.lose_request = (
            None  # bytes: the next request that has them in it is not answered, or not passed on
        )
        self.lost = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                thread = threading.Thread(target=self._carry, args=(client,), daemon=True)
                thread.start()
                self._threads.append(thread)

    def _carry(self, client):
        family = socket.AF_UNIX if isinstance(self.upstream, str) else socket.AF_INET
        with client, socket.socket(family) as server, suppress(OSError):
            server.connect(self.upstream)
            losing, answered = False, True
            while self.listener.fileno() >= 0:
                for ready in select.select([client, server], [], [], 0.05)[0]:
                    data = ready.recv(1 << 20)
                    if not data:
                        return
                    if ready is client:
                        self.round_trips += answered
                        answered = False
                        if self.lose_request is not None and self.lose_request in data:
                            self.lose_request, self.lost = None, self.lost + 1
                            return
                        if self.lose_reply is not None and self.lose_reply in data:
                            self.lose_reply, losing = None, True
                        server.sendall(data)
                    elif losing:
                        self.lost += 1
                        return
                    else:
                        answered = True
                        client.sendall(data)
