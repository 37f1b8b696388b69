"""Runs the cells of doubts.py for a tool that names its provider, and prints what became of each.

    python bench/_doubts_packs.py SUBJECT PORT FOLDER FAULT...

The provider is that of `tests/providers/loopback.py`, another process, which does with a repeat
what the file of the provider says; each cell is another customer there. A subject is a provider
in one of three groups:

- it honours keys: the tool declares `provider=` and, where `RECIPES` has one, its ready probe;
- it can be asked: a probe looks at what the customer has. That nothing is found proves nothing,
  unless the file says so;
- the same with the word of the tool's author that nothing lands later than an hour after it was
  sent. Between two calls an hour passes then, on the clock of the store and that of the provider.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import httpx
from _doubts_cells import BEFORE, CALLS, KINDS, Answer, Cell, Said, closed_port, ended
from _doubts_ours import FAST, TLS, said_by

from effectonce import CannotTell, Downstream, Found, Guard, NotFound, current_effect
from effectonce._core.guarantees import Capability
from effectonce._tools.provider_terms import terms_of
from effectonce.http.client import protect
from effectonce.providers import provider, providers
from effectonce.providers.probes import mangopay, stripe
from effectonce.stores.memory import MemoryStore
from effectonce.testing.clock import FakeClock

ROOT = Path(__file__).parents[1]
QUICK = ("bug before", "closed before", "closed after", "500 after", "404", "not JSON")
HOUR_S = 3600.0
TIMEOUT_S = 1.0  # of one request: only "no answer" waits for it
ASKED, PROOF = ", asked", ", not found is proof"
RECIPES = {  # for those whose answer to a repeat does not always say what became of the first
    "mangopay": lambda client: mangopay.answered(
        client, "", f"{client.base_url.path}refunds", result=lambda made: made["id"]
    ),
    "stripe.v1": lambda client: stripe.listed(
        lambda _: Page(client.get("/refunds").json()["data"])
    ),
}
THEIRS = {
    "closed before": "reset",
    "closed after": "lose",
    "no answer": "slow",
    "500 after": "error after",
}


def _honours_keys(name: str) -> bool:
    return terms_of(name, None).downstream.capability is Capability.KEY


KEYED = tuple(f"effectonce, {name}" for name in providers() if _honours_keys(name))
CAN_BE_ASKED = tuple(
    f"effectonce, {name}{ASKED}"
    for name in providers()
    if not _honours_keys(name) and provider(name).probe is not None
)
PROVING = tuple(subject.replace(ASKED, PROOF) for subject in CAN_BE_ASKED)


@dataclass(frozen=True, slots=True)
class To:
    """A client that sends to one place."""

    client: Any
    base: str

    def post(self, path: str, **rest: Any) -> Any:
        return self.client.post(self.base + path, **rest)

    def patch(self, path: str, **rest: Any) -> Any:
        return self.client.patch(self.base + path, **rest)


@dataclass(frozen=True, slots=True)
class Page:
    """A list, as Stripe's SDK hands it out."""

    data: list[dict[str, Any]]

    def auto_paging_iter(self) -> Iterator[dict[str, Any]]:
        return iter(self.data)


class PackCell:
    """One cell: a tool of one provider, its customer there, and the clocks of both."""

    def __init__(self, name: str, cell: Cell, there: Any) -> None:
        self.name, self.cell, self.there = name, cell, there
        self.clock, self.runs = FakeClock(), 0
        self.guard = Guard(MemoryStore(clock=self.clock), reconcile=False)

    def run(self) -> dict[str, Any]:
        fault = self.cell.fault
        at_the_provider = fault not in (*BEFORE, "bug after")
        self.there.set(faults=[THEIRS.get(fault, fault)] if at_the_provider else [])
        with (
            httpx.Client(timeout=TIMEOUT_S, verify=TLS) as client,
            httpx.Client(base_url=self.there.url) as self.asking,
        ):
            call = self._tool(protect(client, retry=FAST))
            answers = []
            for _ in range(CALLS):
                said = call()
                answers.append(Answer(said, len(self.there.effects)))
                self._later()
        self.guard.close()
        answers[-1] = Answer(answers[-1].said, len(self.there.effects))
        return ended(self.cell, answers)

    def _later(self) -> None:
        if self.cell.downstream == "proof":
            self.clock.advance(HOUR_S + 1)
            self.there.set(advance_s=HOUR_S + 1)
        if self.cell.downstream != "key" or self.name in RECIPES:
            self.guard.reconcile()

    def _tool(self, client: Any) -> Callable[[], Said]:
        from tests.providers.sending import post, result  # noqa: PLC0415  # `_providers` made it known

        in_header = provider(self.name).key.where in ("header", "none")

        def refund(order: str) -> str:
            self.runs += 1
            key = None if in_header else current_effect().downstream_key
            sent = {"order": order, f"metadata[{stripe.MARK}]": stripe.mark()}
            made: str = result(post(To(client, self._base()), self.name, key, sent))
            if self._fault() == "bug after":
                raise ValueError("my own parsing")
            return made

        downstream = {
            "key": None,
            "probe": "probe",
            "proof": Downstream.probe(delay=HOUR_S),
        }[self.cell.downstream]
        tool = self.guard.tool(
            kind=self.cell.kind,
            provider=self.name,
            downstream=downstream,
            retry=FAST,
            through="protected",
            accept_store_loss=True,
        )(refund)
        if downstream is not None:
            tool.probe(self._find)
        elif self.name in RECIPES:
            tool.probe(RECIPES[self.name](self.asking))

        def call() -> Said:
            try:
                with self.guard.step("chat", "refund"):
                    tool("ord_1")
            except Exception as error:
                return said_by(error)
            return Said.DONE

        return call

    def _find(self, order: str) -> Found[str] | NotFound | CannotTell:
        """What the customer has there: it is asked past every client of the tool."""
        found = self.there.effects
        if found:
            return Found(found[0]["id"])
        old_enough = current_effect().in_doubt_s >= HOUR_S
        return NotFound() if self._is_proof() and old_enough else CannotTell("not there")

    def _is_proof(self) -> bool:
        asked = provider(self.name).probe
        return self.cell.downstream == "proof" or (asked is not None and asked.not_found_is_proof)

    def _base(self) -> str:
        """Where to send it; or the fault that keeps it from being sent."""
        match self._fault():
            case "bug before":
                raise ValueError("bad sku")
            case "KeyError before":
                raise KeyError("sku")
            case "refused":
                return f"http://127.0.0.1:{closed_port()}"
            case "DNS":
                return "http://no-such-host.invalid"
            case "TLS":
                return str(self.there.url).replace("http:", "https:")
            case "bad URL":
                return "htp:/nowhere"
            case _:
                return str(self.there.url)

    def _fault(self) -> str:
        return self.cell.fault if self.runs == 1 else ""


@contextmanager
def _providers() -> Iterator[Any]:
    """All providers, in another process. It ends with the block."""
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    from tests.providers.loopback import Loopback  # noqa: PLC0415

    made = Loopback()
    try:
        yield made
    finally:
        made.close()


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    subject, _, _, *faults = sys.argv[1:]
    _, name, *group = subject.split(", ")
    downstream = {(): "key", (ASKED[2:],): "probe", (PROOF[2:],): "proof"}[tuple(group)]
    with _providers() as loopback:
        cells = (Cell(kind, downstream, fault) for kind, fault in product(KINDS, faults))
        print(json.dumps([PackCell(name, each, loopback.account(name)).run() for each in cells]))


if __name__ == "__main__":
    main()
