"""What a decorated call costs where no store is involved, and what `import effectonce` costs.

    python bench/decorator.py [--quick] [--json]

The bare call is a function of three arguments with its loop; a reading tool has no record, so
all it adds is the wrapper.
"""

from __future__ import annotations

from _paired import Goal, Row, machine, options, report
from _wrapped import abare, acall_s, atrivial, bare, call_s, imports, over, trivial

from effectonce import Guard

guard = Guard("memory://")


def calls(slices: int, ops: int) -> list[Row]:
    seconds = call_s(
        {"bare": bare, "trivial": trivial(bare), "ours": guard.tool(kind="read")(bare)}, slices, ops
    )
    aseconds = acall_s(
        {"bare": abare, "trivial": atrivial(abare), "ours": guard.tool(kind="read")(abare)},
        slices,
        ops,
    )
    return [
        over("a read, sync", seconds["ours"], seconds["bare"], Goal("<=", 500)),
        over("a trivial *args wrapper, sync", seconds["trivial"], seconds["bare"]),
        over("a read, async", aseconds["ours"], aseconds["bare"], Goal("<=", 500)),
        over("a trivial *args wrapper, async", aseconds["trivial"], aseconds["bare"]),
    ]


def main() -> None:
    chosen = options(__doc__)
    slices, ops, times = (2, 100, 2) if chosen.quick else (60, 1000, 15)
    report([*calls(slices, ops), imports(times)], chosen, machine())


if __name__ == "__main__":
    main()
