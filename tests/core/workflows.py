"""What the facts about workflows share."""

import contextvars

from effectonce import Rejected
from effectonce.workflows import Run
from tests.core.helpers import QUICK


class Ledger:
    """What was really done, in order."""

    def __init__(self):
        self.done = []

    def do(self, what, result=None):
        self.done.append(what)
        return what if result is None else result


def key_of(guard, state="open", workflow=None):
    (record,) = guard.workflows.runs(state, workflow=workflow)
    return record.request.key


class Flaky:
    """Fails as often as it is told to."""

    def __init__(self, ledger, times, error):
        self.ledger, self.times, self.error = ledger, times, error

    def __call__(self, what: str) -> str:
        if self.times:
            self.times -= 1
            raise self.error
        return self.ledger.do(what)


def registered(guard, body):
    """The workflow `job` as it is deployed today."""
    body.__name__ = body.__qualname__ = "job"
    return guard.workflow(body)


def booking(guard, ledger, stop):
    """A workflow that stops after its first step for as long as there is something in *stop*."""

    @guard.workflow
    def book(run: Run, trip: str) -> None:
        run.step("hotel", ledger.do, "hotel")
        run.compensate("cancel hotel", ledger.do, "no hotel")
        if stop:
            raise stop.pop()
        run.step("train", ledger.do, "train")

    return book


def stopped_after(ledger, *names):
    def job(run: Run, n: int):
        for name in names:
            run.step(name, ledger.do, name)
        raise KeyError("deployed")

    return job


def refusing(ledger):
    def refuse() -> None:
        ledger.do("refuse")
        raise Rejected("sold out")

    return refuse


def elsewhere(function, *args):
    """As another process would: with nothing of where we are."""
    return contextvars.Context().run(function, *args)


def job(body):
    body.__name__ = body.__qualname__ = "job"
    return body


def noting(guard, ledger):
    return guard.tool(kind="idempotent_write", name="note", retry=QUICK)(ledger.do)
