"""A person's decision about one effect: show which it is, ask, and write it down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from effectonce.cli._app import guard_here
from effectonce.cli._ask import make_sure, reason_given, refuse_sealed, who
from effectonce.cli._console import say
from effectonce.cli._exits import CHANGED, NOT_ALLOWED, Stop
from effectonce.cli._output import print_one

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.record import Record


class Decision(NamedTuple):
    """What is decided, and how that is written."""

    what: str  # a sentence without its full stop
    # the lines that a person reads before they decide; it stops if there is nothing to decide
    about: Callable[[Guard, Record], str]
    write: Callable[..., None]  # with the guard, the record, by= and reason=


def decide(decision: Decision, named: str, *, reason: str | None, yes: bool, dry_run: bool) -> None:
    """Show it, ask, and write it down. What is refused changes nothing."""
    from effectonce import ContractViolation
    from effectonce.cli._audit import say_if_left_out
    from effectonce.cli._effects import headline
    from effectonce.cli._find import find_one
    from effectonce.views.effects import as_data, now_of

    by, what = who(), decision.what
    with guard_here() as guard:
        record = find_one(guard, named)
        about = decision.about(guard, record)
        refuse_sealed(record)
        say(f"{headline(record)}\n{about}")
        why = reason_given(reason)
        if dry_run:
            say(f"{what}: this would be written, by {by}: {why}. Nothing was changed.")
            return
        make_sure(f"{what}: write this down?", yes=yes)
        try:
            decision.write(guard, record, by=by, reason=why)
        except ContractViolation as error:
            now = guard.find(record.request.key)
            same = now is not None and _stands(now) == _stands(record)
            code = NOT_ALLOWED if same else CHANGED
            raise Stop(f"{error}.", code, "Nothing was changed.") from None
        after = guard.find(record.request.key) or record
        at = now_of(guard)
        say_if_left_out(guard)
    print_one(
        as_data(after, at),
        lambda: say(f"Written down: {what[0].lower()}{what[1:]}, says {by}."),
        schema="effect",
    )


def _stands(record: Record) -> tuple[Any, ...]:
    """What a decision is about."""
    return record.state, record.request.fingerprint, record.dedup_until
