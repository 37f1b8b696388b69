"""What several processes found about one dependency, in one cell of the store: each votes with
its own calls only.

A vote is "my own circuit is open until then", by the store's clock. A process that opened
because of others does not vote, or else one sick process and its followers would be a majority.
Votes that a process has followed once do not move it again: it has probed since.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from effectonce._core.ops import Cell, Flow, ReadCell, WriteCell
from effectonce._core.resolved import resolved

TRIES = 3  # another process writes the same cell: the next refresh is soon
LATELY = 4  # refreshes after which a silent process is no longer counted
AT_LEAST = 2  # one process is no quorum, even if it is alone


class Vote(Struct, frozen=True, array_like=True):
    seen: float  # when its process last wrote anything
    until: float = 0.0  # its own circuit is open until then


class Quorum(Struct, frozen=True):
    """How the others see it."""

    now: float  # the store's clock
    nodes: int = 0
    against: int = 0  # of them, those that have found it unhealthy
    first_until: float = 0.0  # when the first of these probes again
    last_until: float = 0.0

    @property
    def why(self) -> str:
        return f"{self.against} of {self.nodes} processes have found it unhealthy"


_encode = msgspec.json.Encoder().encode


def exchange(name: str, node: str, vote_s: float, refresh_s: float) -> Flow[dict[str, Vote]]:
    """Write our vote beside the others', and return all. *vote_s*: how long our circuit is open."""
    lately_s = LATELY * refresh_s
    cell = yield from ReadCell(name)
    votes = {}
    for _ in range(TRIES):
        present = {
            other: vote
            for other, vote in votes_of(cell).items()
            if cell.now - vote.seen <= lately_s
        }
        votes = {**present, node: Vote(cell.now, cell.now + vote_s if vote_s > 0 else 0.0)}
        seen = yield from WriteCell(name, cell.revision, _encode(votes), lately_s)
        if seen is None:
            break
        cell = seen
    return votes


def standing(votes: dict[str, Vote], node: str, followed_until: float) -> Quorum:
    """How the others stand to it. What was followed before, until *followed_until*, is old news."""
    now = votes[node].seen
    against = [vote.until for vote in votes.values() if vote.until > max(now, followed_until)]
    if not against:
        return Quorum(now, len(votes))
    return Quorum(now, len(votes), len(against), min(against), max(against))


def carried(standing: Quorum, quorum: float) -> bool:
    """Do enough of them say so?"""
    return standing.against >= AT_LEAST and standing.against > quorum * standing.nodes


def votes_of(cell: Cell) -> dict[str, Vote]:
    """Every process that wrote anything lately."""
    try:
        return msgspec.json.decode(cell.value, type=dict[str, Vote]) if cell.value else {}
    except msgspec.MsgspecError:  # not ours, or of another version: it is written anew
        return {}


resolved(dict[str, Vote])
