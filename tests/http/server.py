"""A server on this machine that counts its effects, honours keys, and goes wrong as it is told."""

import json
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Shop:
    """Every request that is not a GET is an effect, once per key. *faults* are taken one by one;
    then all is well.

    A fault is a status with headers, perhaps with a body, or a word: `reset` before anything is done, `lose` the
    answer after it, `cut` it off in the middle, `break` it off where it does not say its length,
    say `both lengths`, `stall` in the middle of it, `hang` after it, or `vanish`: nobody can
    connect any more.
    """

    def __init__(self, port=0):
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.forget()
        shop = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                length = self.headers.get("content-length")
                shop.lengths.append(length)
                self.body = self.rfile.read(int(length or 0))
                chunked = self.headers.get("transfer-encoding") == "chunked"
                while chunked and (size := int(self.rfile.readline(), 16)):
                    self.body += self.rfile.read(size + 2)[:size]
                if chunked:
                    self.rfile.readline()
                shop.serve(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        # a client that hung up is nothing to talk about
        self.server.handle_error = lambda *broken: None
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def forget(self):
        self.faults, self.requests, self.lengths, self.effects, self.done = [], [], [], 0, {}
        self.bodies = []
        self.header = "idempotency-key"

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()

    @property
    def keys(self):
        """The keys that came, in their order."""
        return [key for _, _, key in self.requests]

    def serve(self, handler):
        path = handler.path.partition("?")[0]
        key = handler.headers.get(self.header)
        with self.lock:
            self.requests.append((handler.command, path, key))
            self.bodies.append(handler.body)
            fault = self.faults.pop(0) if self.faults else None
            if fault == "reset":
                return reset(handler)
            if isinstance(fault, tuple):
                status, headers, *said = fault
                said = said[0] if said else {"error": {"message": "no"}}
                return self.say(handler, status, said, headers)
            body = self.act(handler.command, path, key)
        if fault == "vanish":
            self.server.socket.close()
        if fault in ("lose", "vanish"):
            return reset(handler)
        if fault == "hang":
            self.over.wait(30)
            return reset(handler)
        if fault == "stall":
            self.say(handler, 200, body, {"content-length": "1000"})
            handler.wfile.flush()
            self.over.wait(30)
            return reset(handler)
        if fault in ("break", "both lengths"):
            return in_chunks(handler, body if fault == "both lengths" else None)
        return self.say(handler, 200, body, {}, cut=fault == "cut")

    def act(self, method, path, key):
        if method != "GET" and (key is None or (path, key) not in self.done):
            self.effects += 1
            if key is not None:
                self.done[path, key] = self.effects
        return {"effect": self.done.get((path, key), self.effects)}

    def say(self, handler, status, body, headers, *, cut=False):
        said = json.dumps(body).encode()
        handler.send_response(status)
        for name, value in (
            {"content-type": "application/json", "content-length": str(len(said))} | headers
        ).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(said[:4] if cut else said)
        if cut:
            handler.wfile.flush()
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True


def in_chunks(handler, body):
    """Without a body it begins well and does not end. With one it says its length besides, and a
    wrong one.
    """
    handler.send_response(200)
    handler.send_header("transfer-encoding", "chunked")
    if body is not None:
        handler.send_header("content-length", "3")
    handler.end_headers()
    said = b"{}\n" if body is None else json.dumps(body).encode()
    handler.wfile.write(b"%x\r\n%b\r\n" % (len(said), said))
    if body is not None:
        handler.wfile.write(b"0\r\n\r\n")
    handler.wfile.flush()
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def reset(handler):
    """Not a word, and no farewell."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True
