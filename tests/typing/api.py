"""Type-checked by mypy and pyright, never run: what a user's type checker must see through the
decorator. A line with an error that has to be there names it for both.
"""

from typing import Any, assert_type

from effectonce import Guard, Outcome, breaker, current_effect
from effectonce.dead_letters import Letter, Redriven
from effectonce.observe import Audit, Entry, Event, Logs

guard = Guard("memory://", observers=[Logs()])


@guard.tool(kind="write")
def pay(invoice: str, amount: int = 5) -> dict[str, int]:
    return {invoice: amount}


@guard.tool(kind="write")
async def apay(invoice: str) -> int:
    return len(invoice)


with guard.step("chat", "pay"):
    assert_type(pay("inv_1", amount=6), dict[str, int])
    pay(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pay()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@guard.tool(kind="writes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def misspelt(invoice: str) -> None: ...


@guard.tool(kind="write", downstream="keys")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
def misspelt_too(invoice: str) -> None: ...


assert_type(guard.call(pay, {"invoice": "inv_1"}), Outcome[dict[str, int]])
assert_type(guard.call("pay", {"invoice": "inv_1"}), Any)
guard.call(pay, "inv_1")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


async def called() -> None:
    assert_type(await guard.call(apay, {"invoice": "inv_1"}), Outcome[int])


async def main() -> None:
    async with guard.step("chat", "pay"):
        assert_type(await apay("inv_1"), int)


assert_type(current_effect().downstream_key, str)


def succeeded(outcome: Outcome[int]) -> int:
    return outcome.unwrap()


stripe = breaker("stripe", consecutive=5)


@stripe
def charge(invoice: str, amount: int = 5) -> str:
    return invoice * amount


@stripe
async def acharge(invoice: str) -> int:
    return len(invoice)


@stripe(fallback=lambda error, invoice: None)
def charged(invoice: str) -> bool:
    return bool(invoice)


async def charge_both() -> None:
    assert_type(charge("inv_1", amount=2), str)
    assert_type(await acharge("inv_1"), int)
    assert_type(charged("inv_1"), bool)
    charge(7)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


assert_type(guard.dead_letters.list(tool="pay", older_than_s=60), tuple[Letter, ...])
assert_type(guard.dead_letters.redrive_all(error="TimeoutError"), tuple[Redriven, ...])
guard.dead_letters.list(colour="red")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def hears(event: Event) -> None:
    assert_type(event.name, str)


guard.observe(hears)
guard.observe(Audit(guard))
assert_type(Audit(guard).entries(), list[Entry])
guard.observe(lambda event: event.no_such_field)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
