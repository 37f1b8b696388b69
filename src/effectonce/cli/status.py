"""`effectonce status`: one screen, and whether a person is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from effectonce.cli._app import guard_here
from effectonce.cli._console import console
from effectonce.cli._exits import NEEDS_YOU
from effectonce.cli._options import store_options, takes
from effectonce.cli._output import print_one, print_pairs, shortened
from effectonce.cli._settings import setting
from effectonce.cli._times import span

if TYPE_CHECKING:
    from effectonce import Guard
    from effectonce._core.records import Record

SHOWN, LOOKED_AT, PLACE_MAX = 5, 1000, 60
FURTHER = {
    "in doubt": "indoubt list",
    "abandoned": "effect list",
    "given up": "dlq list",
    "a waiting run": "workflow list",
}  # where the rest of them is


@click.command()
@click.option("--check", is_flag=True, help="Exit with 3 if a person is needed: for a cron job or a monitor.")
@takes("tenant")
@store_options
def status(*, check: bool) -> None:
    r"""One screen: how many effects there are, what is in doubt, what needs you.

    In doubt, sent and abandoned, given up (a dead letter), and runs of workflows that wait: each needs a person, or a command.

    \b
    Examples:
      effectonce status
      effectonce status --check --json | jq .in_doubt
    """
    with guard_here() as guard:
        data = _look(guard)
    print_one(data, lambda: _tell(data), schema="status")
    if check and data["needs_you"]:
        raise SystemExit(NEEDS_YOU)


def _look(guard: Guard) -> dict[str, Any]:
    from effectonce._core.ops import Browse, Tally
    from effectonce._core.records import State
    from effectonce.cli._effects import STATES, abandoned, may_resend, now_of
    from effectonce.cli._history import is_run
    from effectonce.dead_letters._letter import is_dead, letter_of
    from effectonce.dead_letters._letters import GRACE_S

    now, tenant = now_of(guard), setting("tenant") or None
    counts = guard.store.apply(Tally())
    doubts = guard.store.apply(Browse(State.IN_DOUBT, tenant, limit=LOOKED_AT))
    pages = [guard.store.apply(Browse(state, tenant, limit=LOOKED_AT)) for state in (State.DISPATCHED, State.CLAIMED)]
    open_ones = [record for page in pages for record in page]
    left = [r for r in open_ones if abandoned(r, now) and not may_resend(r, now)]
    dead = [r for r in open_ones if is_dead(r, now, GRACE_S)]
    runs = [r for r in open_ones if is_run(r) and r.lease_until <= now]
    others = [r for r in dead if not is_run(r) and r not in left]
    oldest = min((record.decided_at for record in doubts), default=now)
    return {
        "counts": {str(state): counts.get(state, 0) for state in STATES},
        "in_doubt": len(doubts),
        "in_doubt_oldest_s": round(now - oldest, 3) if doubts else None,
        "abandoned": len(left),
        "dead_letters": len(doubts) + len(dead),
        "given_up": len(others),
        "waiting_runs": len(runs),
        "more": LOOKED_AT in (len(doubts), *map(len, pages)),
        "needs_you": [
            *(_needs(r, "in doubt", now - r.decided_at) for r in sorted(doubts, key=lambda r: r.decided_at)),
            *(_needs(r, "abandoned", now - r.lease_until) for r in left),
            *(_needs(r, "given up", letter_of(r, None, now).age_s) for r in others),
            *(_needs(r, "a waiting run", now - r.lease_until) for r in runs),
        ],
    }


def _needs(record: Record, why: str, for_s: float) -> dict[str, Any]:
    from effectonce.cli._effects import place_of, reference

    return {
        "reference": reference(record),
        "tool": record.request.terms.tool,
        "where": place_of(record),
        "why": why,
        "for_s": round(for_s, 3),
    }


def _tell(data: dict[str, Any]) -> None:
    needs = data["needs_you"]
    shown = [f"{count:,} {state}".replace("_", " ") for state, count in data["counts"].items() if count]
    effects = ", ".join(shown) or "none yet: they appear when a guarded tool is called"
    effects += " (of all tenants)" if setting("tenant") and shown else ""
    many = " or more" if data["more"] else ""
    what = []
    if data["in_doubt"]:
        what.append(f"{data['in_doubt']:,}{many} in doubt, the oldest for {span(data['in_doubt_oldest_s'])}")
    if data["abandoned"]:
        what.append(f"{data['abandoned']:,} sent and abandoned: `effectonce store gc` puts them in doubt")
    if data["given_up"]:
        what.append(f"{data['given_up']:,} given up: `effectonce dlq list`")
    if data["waiting_runs"]:
        runs = data["waiting_runs"]
        what.append(f"{runs:,} run{'s wait' if runs > 1 else ' waits'}: `effectonce workflow list`")
    print_pairs([("effects", effects), ("needs you", "; ".join(what) or "nothing: all is well")], style="bold")
    if not needs:
        return
    screen = console()
    screen.print()
    print_pairs(
        [
            (n["reference"], n["tool"], f"{n['why']} for {span(n['for_s'])}", shortened(n["where"], PLACE_MAX))
            for n in needs[:SHOWN]
        ]
    )
    further = dict.fromkeys(FURTHER[need["why"]] for need in needs[SHOWN:])
    least = "At least " if data["more"] else ""
    rest = "" if not further else f" {least}{len(needs) - SHOWN:,} more: effectonce {', '.join(further)}."
    screen.print(f"\n[dim]The story of one: effectonce effect show {needs[0]['reference']}.{rest}[/]")
