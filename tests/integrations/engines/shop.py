"""What the workers of all engines do: refund, at a bank in another process, with accidents that
a test asks for.

An accident is a file in the worker's folder, named like the point where it happens. It is used
up before it happens, so it happens once.
"""

import json
import os
import signal
import threading
from pathlib import Path

from effectonce import Guard, NotSent, Retry, current_effect
from effectonce.testing.bank import pay

FOLDER = Path(os.environ.get("SHOP_FOLDER", "."))
PORT = int(os.environ.get("SHOP_BANK", "0"))

guard = Guard(
    os.environ.get("SHOP_EFFECTS", f"sqlite:///{FOLDER / 'effects.db'}"), spool=FOLDER / "spool"
)


def accident(point):
    try:
        what = (FOLDER / point).read_text()
        (FOLDER / point).unlink()
    except FileNotFoundError:
        return
    if what == "kill the worker":
        os.kill(os.getppid(), signal.SIGKILL)
    if what.startswith("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError(f"{what} at {point}")


@guard.tool(kind="irreversible", downstream="key", volatile=["reason"], lease_s=0.5)
def refund(payment_id: str, amount_minor: int, reason: str) -> str:
    key = current_effect().downstream_key
    accident("before the effect")
    receipt = pay(PORT, payment_id, amount_minor, key=key)["receipt"]
    accident("after the effect")
    return str(receipt)


@guard.tool(kind="write", downstream="none", retry=Retry(attempts=1))
def closed(payment_id: str) -> str:
    """Its first attempt is not sent."""
    try:
        accident("before the effect")
    except RuntimeError as error:
        raise NotSent(str(error), retry_after_s=0.01) from None
    return str(pay(PORT, payment_id, 1)["receipt"])


@guard.tool(kind="irreversible", downstream="none")
def refused(payment_id: str) -> str:
    """The bank says no, for certain."""
    return str(pay(PORT, payment_id, 1, fault="refuse")["receipt"])


@guard.tool(kind="irreversible", downstream="none", lease_s=0.5)
def wire(payment_id: str) -> str:
    """Nobody can be asked whether it happened: a lost answer is a doubt."""
    return str(pay(PORT, payment_id, 1, fault="lose-answer")["receipt"])


def refunded(payment_id: str, reason: str) -> str:
    """A step: the tool, and what may go wrong around it."""
    receipt = refund(payment_id, 1400, reason)
    accident("after the tool")
    return receipt


def serve(answered):
    """Do what the folder asks for: a file `ask-N` holds a command as JSON; its answer is
    `answer-N`.
    """
    print("ready", flush=True)
    done, pause, parent = set(), threading.Event(), os.getppid()
    while os.getppid() == parent:
        for ask in sorted(FOLDER.glob("ask-*")):
            if ask.name in done:
                continue
            done.add(ask.name)
            answer = Path(str(ask).replace("ask-", "answer-"))
            if answer.exists():
                continue
            try:
                said = {"value": answered(json.loads(ask.read_text()))}
            except Exception as error:
                said = {"error": repr(error)}
            answer.with_suffix(".part").write_text(json.dumps(said))
            answer.with_suffix(".part").rename(answer)
        pause.wait(0.01)
