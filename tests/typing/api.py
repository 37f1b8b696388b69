"""Type-checked, never run: what a user's type checker must see through the decorator."""

from typing import assert_type

from effectonce import Guard, Outcome, current_effect

guard = Guard("memory://")


@guard.tool(kind="write")
def pay(invoice: str, amount: int = 5) -> dict[str, int]:
    return {invoice: amount}


@guard.tool(kind="write")
async def apay(invoice: str) -> int:
    return len(invoice)


with guard.step("chat", "pay"):
    assert_type(pay("inv_1", amount=6), dict[str, int])
    pay(7)  # type: ignore[arg-type]
    pay()  # type: ignore[call-arg]


async def main() -> None:
    async with guard.step("chat", "pay"):
        assert_type(await apay("inv_1"), int)


assert_type(current_effect().downstream_key, str)


def succeeded(outcome: Outcome[int]) -> int:
    return outcome.unwrap()
