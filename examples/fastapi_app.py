"""An API that is safe to retry: five lines in front of a FastAPI app.

    pip install effectonce fastapi uvicorn
    python -m uvicorn --app-dir examples fastapi_app:app

Every payment that is really made is a line in payments.log.
"""

import time
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel

from effectonce import Guard, current_effect
from effectonce.http.server import IdempotencyMiddleware

CUSTOMERS = {b"Bearer alice-secret": "alice", b"Bearer bob-secret": "bob"}


def customer(scope: dict) -> str | None:
    """Whose request is it? None is answered with 401."""
    return CUSTOMERS.get(dict(scope["headers"]).get(b"authorization"))


app = FastAPI()
app.add_middleware(IdempotencyMiddleware, guard=Guard("sqlite:///effects.db"), tenant=customer)


class Payment(BaseModel):
    """What is to be paid."""

    order: str
    amount_minor: int
    takes_s: float = 0.0


@app.post("/payments", status_code=201)
def pay(payment: Payment) -> dict[str, str | int]:
    """Pay, and let the bank know under which key: a retry, wherever it comes from, pays once."""
    with Path("payments.log").open("a") as log:
        log.write(f"{payment.order} {payment.amount_minor} {current_effect().downstream_key}\n")
    time.sleep(payment.takes_s)
    return {"order": payment.order, "paid_minor": payment.amount_minor}
