"""An API that knows nothing of keys, in nothing but the standard library: it could be in any
language. It prints its port.

Every payment that is really made is a line in payments.log.
"""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Api(BaseHTTPRequestHandler):
    """POST makes a payment."""

    def do_GET(self) -> None:
        """Say that it is there."""
        self.answer({"payments": "POST /payments"})

    def do_POST(self) -> None:
        """Pay, each time that it is asked to."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with Path("payments.log").open("a") as log:
            log.write(
                f"{asked['order']} {asked['amount_minor']} {self.headers['idempotency-key']}\n"
            )
        self.answer({"order": asked["order"], "paid_minor": asked["amount_minor"]})

    def answer(self, said: dict[str, str | int]) -> None:
        """Answer in JSON."""
        body = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
print(server.server_port, flush=True)
server.serve_forever()
