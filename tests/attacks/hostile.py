"""A store in which everything that others can write holds what a terminal, a pipe or a log would
obey.
"""

import contextlib

from effectonce import EffectOnceError, Guard, Retry
from effectonce.observe import Audit
from effectonce.workflows import Run

ROW = "FORGED\teff_000000000000\tcompleted"
STORABLE = {
    "ESC": "\x1b[2J",
    "OSC 8": "\x1b]8;;http://evil.example\x07here\x1b]8;;\x07",
    "C1": "\x9b31m\x9d0;title\x9c\x85",
    "CR": "\rFORGED",
    "a row": f"\r\n{ROW}\n{ROW}\n",
    "bidi": "\u202e\u2066\u2069\u200f\u061c",
    "no width": "\u200b\u200d\u2060\ufeff\u00ad",
    "line ends": "\u2028\u2029\x0b\x0c\x1c\x1e",
    "tags": "\U000e0041",
}
HOSTILE = "evil" + "".join(STORABLE.values()) + "end"
HALF = "\ud83d"  # a lone surrogate: no store holds one, and an event may
OBEYED = (
    frozenset("".join(STORABLE.values()) + HALF)
    - frozenset(ROW + "[2J]8;;http://evil.example0itle31mhere")
    - {"\n", "\t"}
)


def filled(url, said):
    """A guard whose tools, places, errors and results are called *said*."""
    guard = Guard(url)
    guard.observe(Audit(guard))

    @guard.tool(kind="write", retry=Retry(attempts=1), name=f"tool {said}")
    def lost(what: str) -> None:
        raise TimeoutError(said)

    @guard.tool(kind="write", retry=Retry(attempts=1), name=f"done {said}")
    def done(what: str) -> dict[str, str]:
        return {said: said}

    @guard.workflow(identity=["order"], name=f"flow {said}")
    def deliver(run: Run, order: str) -> None:
        run.step(f"step {said}", lost, order)

    for tool in (lost, done):
        with (
            guard.step(f"scope {said}", f"{tool.contract.name} {said}"),
            contextlib.suppress(EffectOnceError),
        ):
            guard.call(tool, {"what": said})
    with contextlib.suppress(EffectOnceError):
        deliver(said)
    return guard
