"""A process whose signal handler makes guarded calls, wherever the store of the main thread is
interrupted. Prints what came of them.
"""

import os
import signal
import sys

from effectonce import Guard, StoreUnavailable

guard = Guard(sys.argv[1], cache=0)
worked, refused, strikes = [], [], 0


@guard.tool(kind="write", wait_s=0)
def pay(payment: str):
    return payment


def call(payment):
    with guard.step("chat", payment):
        return pay(payment)


def handler(_signal, _frame):
    payment = f"in handler {strikes}"
    try:
        assert call(payment) == payment
        worked.append(payment)
    except StoreUnavailable as error:
        (refused if "signal handler" in str(error) else []).append(payment)


def strike_at(number):
    """Make a call, and send this process a signal where the *number*-th function of a store
    begins. False: there are fewer.
    """
    begun = 0

    def trace(frame, event, _):
        nonlocal begun
        if event == "call" and "/effectonce/stores/" in frame.f_code.co_filename:
            begun += 1
            if begun == number:
                sys.settrace(None)
                os.kill(os.getpid(), signal.SIGUSR1)

    sys.settrace(trace)
    try:
        assert call(f"payment {number}") == f"payment {number}"
    finally:
        sys.settrace(None)
    return begun == number


signal.signal(signal.SIGUSR1, handler)
call("the first")
while strike_at(strikes + 1):
    strikes += 1
for payment in refused:
    assert call(payment) == payment
print(strikes, len(worked) + len(refused), guard.counts())
