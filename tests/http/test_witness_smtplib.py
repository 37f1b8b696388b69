"""A protected client of smtplib is a witness: against a server that counts its mails, and hangs
up where it is told.
"""

import signal
import smtplib
import socket
import struct
from email.message import EmailMessage

import pytest

from effectonce import ContractViolation, Guard, PartialSuccess, current_effect
from effectonce.http.client import protect
from tests.http.twice import DONE, DOUBT, GAVE_UP, ONCE, each_way, ended
from tests.servers.listener import Listener

MAIL = "Subject: paid\r\n\r\n.thank you\r\n"
HANG_UP = "hang up"


class PostOffice(Listener):
    """*faults* say what comes instead of the usual reply to a command: another one, or that it
    hangs up. `dot` is the end of a mail.

    `kept` is a dot, too, whose mail is kept whatever is said then.
    """

    def __init__(self):
        self.faults, self.mails = {}, []
        super().__init__(self._talk_to)
        self.at = ("127.0.0.1", self.port)

    def _talk_to(self, line):
        with line.makefile("rb") as reading:
            self._say(line, "greet", "220 hello")
            for command in iter(reading.readline, b""):
                verb = command.split()[0].decode().lower()
                to = command.partition(b"<")[2].partition(b">")[0].decode()
                usual = {"data": "354 go on", "quit": "221 bye"}.get(verb, "250 ok")
                self._say(line, to if to in self.faults else verb, usual)
                if verb == "data" and "data" not in self.faults:
                    self._take(line, reading)

    def _take(self, line, reading):
        if self.faults.get("message") == HANG_UP:
            reading.readline()
            raise reset(line)
        mail = b"".join(iter(reading.readline, b".\r\n"))
        if "dot" not in self.faults:
            self.mails.append(mail)
        self._say(line, "kept" if "kept" in self.faults else "dot", "250 queued")

    def _say(self, line, at, usual):
        said = self.faults.get(at, usual)
        if said == HANG_UP:
            raise ConnectionResetError
        line.sendall(f"{said}\r\n".encode())


def reset(line):
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()
    return ConnectionResetError()


@pytest.fixture
def office():
    with PostOffice() as office:
        yield office


SMTP = protect(smtplib.SMTP)


def posts(office, to=("anna@example.com",), mail=MAIL):
    def act():
        with SMTP(*office.at, timeout=30) as server:
            return server.sendmail("shop@example.com", list(to), mail)

    return act


@each_way
def test_a_mail_that_was_queued_is_done_whatever_the_tool_makes_of_it(office, contract):
    assert ended(posts(office), **contract) == DONE
    assert office.mails == [b"Subject: paid\r\n\r\n..thank you\r\n"]


def test_a_message_goes_the_same_way(office):
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = (
        "shop@example.com",
        "anna@example.com",
        "paid",
    )

    def act():
        with SMTP(*office.at, timeout=30) as server:
            server.send_message(message)

    assert ended(act, through=SMTP) == DONE
    assert len(office.mails) == 1


@pytest.mark.parametrize("at", ["greet", "ehlo", "mail", "rcpt", "data"])
def test_a_connection_that_is_lost_before_the_mail_is_written_sent_nothing(office, at):
    office.faults = {at: HANG_UP, "helo": HANG_UP}

    assert ended(posts(office), through=SMTP) == ["SMTPServerDisconnected"] * 2  # it ran twice
    assert ended(posts(office))[1] == "InDoubt"
    assert office.mails == []


def test_so_did_one_that_is_lost_in_the_middle_of_it(office):
    """A mail that is larger than what the system holds for it."""
    office.faults = {"message": HANG_UP}
    large = MAIL + f"{'x' * 990}\r\n" * 20_000

    assert ended(posts(office, mail=large), through=SMTP) == GAVE_UP
    assert office.mails == []


def test_a_server_that_nobody_can_reach_was_sent_nothing(nobody):
    port = int(nobody.rpartition(":")[2])

    assert ended(lambda: SMTP("127.0.0.1", port), through=SMTP) == GAVE_UP
    assert ended(lambda: SMTP("mail.invalid"), through=SMTP) == ["gaierror"] * 2


@each_way
@pytest.mark.parametrize(
    ("at", "error"),
    [
        ("mail", "SMTPSenderRefused"),
        ("rcpt", "SMTPRecipientsRefused"),
        ("data", "SMTPDataError"),
        ("dot", "SMTPDataError"),
    ],
)
def test_a_refusal_is_a_failure_for_good(office, contract, at, error):
    office.faults = {at: "550 no"}

    assert ended(posts(office), **contract) == [error, "ReplayedFailure"]
    assert office.mails == []


@pytest.mark.parametrize("at", ["mail", "rcpt", "data", "dot"])
@pytest.mark.parametrize("reply", ["451 later", "421 closing", "530 log in first"])
def test_a_refusal_that_may_be_lifted_may_run_again(office, at, reply):
    office.faults = {at: reply}
    assert "InDoubt" not in ended(posts(office), through=SMTP)

    guard, office.faults = Guard("memory://", cache=0), {at: reply}

    @guard.tool(kind="write", through=SMTP, retry=ONCE)
    def work(order: int) -> str:
        posts(office)()
        return "sent"

    with guard.step("chat", "work"):
        with pytest.raises(Exception):  # noqa: B017  # GaveUp, or theirs
            work(1)
        office.faults = {}
        assert work(1) == "sent"
    assert len(office.mails) == 1


def test_no_answer_to_the_dot_is_a_doubt(office):
    for at, mails in (("dot", 0), ("kept", 1)):
        office.faults = {at: HANG_UP}
        assert ended(posts(office), through=SMTP) == DOUBT
        assert len(office.mails) == mails
    office.faults = {"kept": "no reply of SMTP"}
    assert ended(posts(office), through=SMTP) == DOUBT


def test_a_signal_while_the_mail_is_written_is_a_doubt(office):
    """Nobody knows how far it came."""
    client = protect(smtplib.SMTP(*office.at, timeout=30))

    sock, guard = client.sock, Guard("memory://", cache=0)
    client.sock = Interrupted(sock)

    @guard.tool(kind="write", through=client)
    def work(order: int) -> None:
        client.sendmail("shop@example.com", "anna@example.com", MAIL)

    with guard.step("chat", "work"):
        with pytest.raises(KeyboardInterrupt):
            work(1)
        with pytest.raises(Exception, match="in doubt"):
            work(1)
    client.close()


class Interrupted:
    """A socket whose user presses Ctrl-C when a mail has been written to it."""

    def __init__(self, sock):
        self._sock = sock

    def sendall(self, data):
        self._sock.sendall(data)
        if data.endswith(b"\r\n.\r\n"):
            signal.raise_signal(signal.SIGINT)

    def __getattr__(self, name):
        return getattr(self._sock, name)


# ---------------------------------------------------------------- recipients


def test_what_some_recipients_get_is_done_and_the_others_are_counted(office):
    office.faults = {"bert@example.com": "550 unknown"}
    both = posts(office, ["anna@example.com", "bert@example.com"])
    guard = Guard("memory://", cache=0)

    @guard.tool(kind="write", through=SMTP)
    def work(order: int) -> None:
        if both():
            raise ValueError("not all")

    with guard.step("chat", "work"):
        for _ in range(2):
            with pytest.raises(
                Exception, match="refused 1 of its recipients, was answered with success"
            ):
                work(1)
    assert len(office.mails) == 1


def test_a_tool_says_itself_that_only_some_got_it(office):
    office.faults = {"bert@example.com": "550 unknown"}
    both = posts(office, ["anna@example.com", "bert@example.com"])

    partly = PartialSuccess(
        "bert was refused", done=["anna"], corrective_action="ask bert for another address"
    )
    assert ended(both, error=partly, through=SMTP) == [
        "PartialSuccess",
        "PartialSuccess",
    ]
    assert len(office.mails) == 1


def test_if_one_of_all_refusals_may_be_lifted_it_may_run_again(office):
    office.faults = {"anna@example.com": "550 unknown", "bert@example.com": "450 busy"}

    says = ended(posts(office, ["anna@example.com", "bert@example.com"]), through=SMTP)

    assert says == GAVE_UP


# ---------------------------------------------------------------- what is protected


def test_a_client_that_is_connected_is_protected_in_place(office):
    client = smtplib.SMTP(*office.at, timeout=30)

    assert protect(client) is client
    assert client.sendmail("shop@example.com", "anna@example.com", MAIL) == {}
    assert (
        ended(
            lambda: client.sendmail("shop@example.com", "anna@example.com", MAIL),
            through=client,
        )[0]
        == "ResultUnavailable"
    )
    client.quit()
    assert len(office.mails) == 2


def test_it_stays_a_kind_of_what_it_was():
    assert issubclass(SMTP, smtplib.SMTP)
    assert issubclass(protect(smtplib.SMTP_SSL), smtplib.SMTP_SSL)
    assert SMTP.__name__ == "SMTP"


def test_a_mail_that_is_written_by_hand_is_a_doubt(office):
    def act():
        with SMTP(*office.at, timeout=30) as server:
            server.helo()
            server.mail("shop@example.com")
            server.rcpt("anna@example.com")
            server.docmd("DATA")
            server.send(f"{MAIL}.\r\n")
            server.getreply()

    assert ended(act, through=SMTP) == DOUBT
    assert len(office.mails) == 1


def test_it_is_protected_once_and_takes_no_policy():
    with pytest.raises(TypeError, match="protected already"):
        protect(SMTP)
    with pytest.raises(ContractViolation, match="takes no policy"):
        protect(smtplib.SMTP, keys="Idempotency-Key")
    with pytest.raises(TypeError, match="not a client"):
        protect(str)


def test_a_mail_outside_sending_is_on_the_record_before_it_leaves(office):
    """Its tool declares separate_dispatch and knows sending(): a crash meanwhile must not let it
    run again.
    """
    guard, states = Guard("memory://", cache=0), []

    @guard.tool(kind="write", separate_dispatch=True, retry=ONCE)
    def work(order: int) -> None:
        states.append(str(guard.find(current_effect().key).state))
        posts(office)()
        states.append(str(guard.find(current_effect().key).state))
        with current_effect().sending():
            pass

    with guard.step("chat", "work"):
        work(1)

    assert states == ["claimed", "dispatched"]
