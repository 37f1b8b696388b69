"""What the pages send to: a mail server, an issue tracker and a telephone company on this
machine. All do what they are asked for, and hang up before they say so.
"""

import imaplib
import json
import socketserver
import threading
from contextlib import contextmanager
from email.utils import formatdate
from urllib.parse import parse_qsl

from tests.providers.answering import Provider


class Mailbox(socketserver.ThreadingTCPServer):
    """As much of IMAP as a search needs."""

    daemon_threads = allow_reuse_address = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Session)
        self.sent, self.refuses = [], False
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def connect(self):
        client = imaplib.IMAP4("127.0.0.1", self.server_address[1])
        client.login("ada", "secret")
        return client

    def __exit__(self, *failure):
        self.shutdown()
        super().__exit__(*failure)


class Session(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"* OK ready\r\n")
        for line in self.rfile:
            tag, command, *rest = line.decode().split(" ")
            lines, status = [], b"OK done"
            match command.strip().upper():
                case "CAPABILITY":
                    lines = [b"* CAPABILITY IMAP4rev1"]
                case "EXAMINE":
                    lines = [b"* 1 EXISTS"]
                    status = b"NO no such folder" if self.server.refuses else status
                case "UID":
                    wanted = rest[-1].strip().strip('"')
                    uids = [str(n) for n, sent in enumerate(self.server.sent, 1) if sent == wanted]
                    lines = [" ".join(["* SEARCH", *uids]).encode()]
                case "LOGOUT":
                    lines = [b"* BYE"]
            self.wfile.write(b"".join(each + b"\r\n" for each in lines))
            self.wfile.write(tag.encode() + b" " + status + b"\r\n")


class Outgoing(socketserver.ThreadingTCPServer):
    """As much of SMTP as a mail needs. It takes the mail, and hangs up."""

    daemon_threads = allow_reuse_address = True

    def __init__(self, mailbox):
        super().__init__(("127.0.0.1", 0), Delivery)
        self.mailbox = mailbox
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def __exit__(self, *failure):
        self.shutdown()
        super().__exit__(*failure)


class Delivery(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"220 ready\r\n")
        for line in self.rfile:
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                for each in self.rfile:
                    if each.lower().startswith(b"message-id:"):
                        self.server.mailbox.sent.append(each.decode().partition(":")[2].strip())
                    if each == b".\r\n":
                        return
            self.wfile.write(b"250 fine\r\n")


def _comments(server, method, path, query, body):
    if method == "POST":
        number = len(server.objects) + 1
        server.objects.append({"id": number, **json.loads(body)})
        raise ConnectionAbortedError("it is done, and the answer is lost")
    return 200, server.objects, {}


def _messages(server, method, path, query, body):
    if method == "POST":
        sent = dict(parse_qsl(body.decode()))
        message = {"to": sent["To"], "from": sent["From"], "body": sent["Body"]}
        made = {"sid": f"SM{len(server.objects) + 1}", "date_created": formatdate()}
        server.objects.insert(0, message | made)
        raise ConnectionAbortedError("it is done, and the answer is lost")
    wanted = query["To"], query["From"]
    found = [each for each in server.objects if (each["to"], each["from"]) == wanted]
    return 200, {"messages": found, "next_page_uri": None}, {}


class PostOffice:
    """What the pages know of it."""

    def __init__(self, smtp, mailbox, tracker, phone):
        self.smtp_port, self.connect = smtp.server_address[1], mailbox.connect
        self.github_url, self.twilio_url = tracker.url, phone.url
        self._mailbox, self._tracker, self._phone = mailbox, tracker, phone

    @property
    def mails(self):
        return len(self._mailbox.sent)

    @property
    def comments(self):
        return len(self._tracker.objects)

    @property
    def messages(self):
        return len(self._phone.objects)


@contextmanager
def post_office():
    apis = Provider(_comments), Provider(_messages)
    with Mailbox() as mailbox, Outgoing(mailbox) as smtp, apis[0] as tracker, apis[1] as phone:
        yield PostOffice(smtp, mailbox, tracker, phone)
