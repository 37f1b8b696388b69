"""Mail of any server: search the folder of sent mail for the Message-ID. Only what your server
keeps a copy of is found there, so what is not found may still have been sent.

    mail["Message-ID"] = imap.message_id("shop.example")                 # in the tool
    send.probe(imap.message(connect, "shop.example", folder="Sent"))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from effectonce.providers.probes._asking import Probe, asking
from effectonce.providers.probes.gmail import message_id

__all__ = ["message", "message_id"]


class ImapRefusal(Exception):
    """The server answered NO or BAD."""


def message(
    connect: Callable[[], Any],
    domain: str,
    *,
    folder: str = "Sent",
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its Message-ID, which is the result. *connect* returns an `imaplib.IMAP4` that has
    logged in; it is logged out afterwards.
    """

    def search(*_: Any, **__: Any) -> Iterator[str]:
        wanted = message_id(domain)
        with connect() as client:
            _ok(client.select(f'"{folder}"', readonly=True))
            answer = _ok(client.uid("SEARCH", "HEADER", "Message-ID", f'"{wanted}"'))
        uids = b" ".join(part for part in answer if part).split()
        return iter([wanted] * len(uids))

    return asking("the mailbox", search, str, proof_after_s)


def _ok(answer: tuple[str, list[Any]]) -> list[Any]:
    status, data = answer
    if status != "OK":
        raise ImapRefusal(f"{status}: {data!r}")
    return data
