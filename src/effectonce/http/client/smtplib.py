"""smtplib: a mail is handed over with the dot that ends it, and with nothing before that.

Rule 1: Until the message is written, nothing was sent, whichever side hangs up and whatever the
server refuses. Rule 2: An error while the message is written says that its last bytes, the dot,
did not leave. Rule 3: A reply to the dot is the server's word: 250 is done, 4xx and 5xx are
refusals. No reply is a doubt.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from effectonce._core.classification.verdicts import Bucket, Certainty, Verdict
from effectonce._core.observed_sends import Sighting
from effectonce.effect import leaving, past_us
from effectonce.http.client.attempts import effect_here

UNSENT = Verdict(Bucket.NO_ANSWER, Certainty.NOT_SENT, "the mail was not handed over")
HANDS_OVER = frozenset({"data", "bdat"})
LOG_IN_FIRST = frozenset({530, 534, 535, 538})


def install(client: Any) -> Any:
    """The class that is used instead of a class; an object gets it."""
    theirs: Any = client if isinstance(client, type) else type(client)
    watched = _watched(theirs)
    if client is theirs:
        return watched
    client.__class__ = watched
    return client


def protected(client: Any) -> bool:
    return hasattr(client, "effectonce_mail")


@lru_cache
def _watched(theirs: Any) -> Any:
    smtplib = sys.modules["smtplib"]

    class WatchedSession(theirs):  # type: ignore[misc]
        effectonce_mail: Sighting | None = None  # the one that is under way

        def connect(self, *args: Any, **how: Any) -> Any:
            with past_us():
                return super().connect(*args, **how)

        def sendmail(self, from_addr: str, to_addrs: Any, *args: Any, **how: Any) -> Any:
            with _mail(self) as mail:
                try:
                    refused = super().sendmail(from_addr, to_addrs, *args, **how)
                except smtplib.SMTPSenderRefused as error:
                    mail.verdict = _refused([error.smtp_code])
                    raise
                except smtplib.SMTPRecipientsRefused as error:
                    mail.verdict = _refused([code for code, _ in error.recipients.values()])
                    raise
                if refused:
                    mail.request += f", which refused {len(refused)} of its recipients,"
                return refused

        def data(self, msg: Any) -> Any:
            with _mail(self) as mail:
                try:
                    code, reply = super().data(msg)
                except smtplib.SMTPDataError as error:
                    mail.verdict = _refused([error.smtp_code])
                    raise
                mail.answered, mail.verdict = code == 250, _refused([code])
                return code, reply

        def send(self, s: Any) -> Any:
            mail = self.effectonce_mail
            if mail is None or isinstance(s, str):  # a command
                return super().send(s)
            mail.verdict = None
            try:
                return super().send(s)
            except smtplib.SMTPServerDisconnected:
                mail.verdict = UNSENT
                raise

        def putcmd(self, cmd: str, args: str = "") -> Any:
            if self.effectonce_mail is None and cmd.partition(" ")[0].lower() in HANDS_OVER:
                _announced(self)  # by hand: how it ends is not seen
            return super().putcmd(cmd, args)

    WatchedSession.__name__, WatchedSession.__qualname__ = theirs.__name__, theirs.__qualname__
    return WatchedSession


@contextmanager
def _mail(client: Any) -> Iterator[Sighting]:
    """The mail that is sent here: `sendmail` calls `data` in the end."""
    if client.effectonce_mail is not None:
        yield client.effectonce_mail
        return
    mail = client.effectonce_mail = _announced(client)
    mail.verdict = UNSENT
    try:
        yield mail
    finally:
        client.effectonce_mail = None


def _announced(client: Any) -> Sighting:
    mail, effect = Sighting(f"a mail through {client._host or 'this server'}"), effect_here()
    if effect is not None:
        effect.announce(mail)
        leaving(effect, mail)
    return mail


def _refused(codes: list[int]) -> Verdict | None:
    """What these replies say. None: they are no refusals."""
    why = f"the server answered {', '.join(map(str, sorted(set(codes))))}"
    if not all(400 <= code < 600 for code in codes):
        return None
    if any(code < 500 for code in codes):
        return Verdict(Bucket.OVERLOADED, Certainty.REJECTED, why)
    bucket = Bucket.AUTH if LOG_IN_FIRST.intersection(codes) else Bucket.DECLINED
    return Verdict(bucket, Certainty.REJECTED, why)
