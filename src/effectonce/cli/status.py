"""`effectonce status`: one screen, and whether a person is needed."""

from __future__ import annotations

from typing import Any

import click

from effectonce.cli._app import guard_here
from effectonce.cli._commands import runnable
from effectonce.cli._console import console
from effectonce.cli._exits import NEEDS_YOU
from effectonce.cli._options import effect_options
from effectonce.cli._output import print_one, print_pairs, shortened
from effectonce.cli._settings import setting
from effectonce.views.times import span

SHOWN, PLACE_MAX = 5, 60
FURTHER = {
    "in doubt": "indoubt list",
    "waiting for approval": "approve list",
    "abandoned": "effect list",
    "given up": "dlq list",
    "a waiting run": "workflow list",
}  # where the rest of them is


@click.command()
@click.option(
    "--check", is_flag=True, help="Exit with 3 if a person is needed: for a cron job or a monitor."
)
@effect_options
def status(*, check: bool) -> None:
    r"""One screen: how many effects there are, what is in doubt, what needs you.

    In doubt, waiting for approval, sent and abandoned, given up (a dead letter), and runs of
    workflows that wait: each needs a person, or a command.

    \b
    Examples:
      effectonce status
      effectonce status --check --json | jq .in_doubt
    """
    from effectonce.views.status import look

    with guard_here() as guard:
        data = look(guard, setting("tenant") or None)
    print_one(data, lambda: _tell(data), schema="status")
    if check and data["needs_you"]:
        raise SystemExit(NEEDS_YOU)


def _tell(data: dict[str, Any]) -> None:
    needs = data["needs_you"]
    more = dict.fromkeys(data["counts_more"], " or more")
    shown = [
        f"{count:,}{more.get(state, '')} {state}".replace("_", " ")
        for state, count in data["counts"].items()
        if count
    ]
    effects = ", ".join(shown) or "none yet: they appear when a guarded tool is called"
    effects += " (of all tenants)" if setting("tenant") and shown else ""
    many = " or more" if data["more"] else ""
    what, runs = [], data["waiting_runs"]
    if data["in_doubt"]:
        oldest = span(data["in_doubt_oldest_s"])
        what.append(f"{data['in_doubt']:,}{many} in doubt, the oldest for {oldest}")
    if data["waiting_approval"]:
        wait = "wait" if data["waiting_approval"] > 1 else "waits"
        what.append(
            f"{data['waiting_approval']:,} {wait} for approval:"
            f" `{runnable('effectonce approve list')}`"
        )
    if data["abandoned"]:
        sweep = f"`{runnable('effectonce store gc')}` puts them in doubt"
        what.append(f"{data['abandoned']:,} sent and abandoned: {sweep}")
    if data["given_up"]:
        what.append(f"{data['given_up']:,} given up: `{runnable('effectonce dlq list')}`")
    if runs:
        wait = "runs wait" if runs > 1 else "run waits"
        what.append(f"{runs:,} {wait}: `{runnable('effectonce workflow list')}`")
    rows = [("effects", effects), ("needs you", "; ".join(what) or "nothing: all is well")]
    for each in data["paused"]:
        resume = runnable(f"effectonce tool resume {each['tool']}")
        since = f"{each['tool']} for {span(each['for_s'])}, by {each['by']}: {each['reason']}"
        rows.append(("paused", f"{since}. `{resume}`"))
    print_pairs(rows, style="bold")
    if not needs:
        return
    screen = console()
    screen.print()
    shown_needs = []
    for n in needs[:SHOWN]:
        why, where = f"{n['why']} for {span(n['for_s'])}", shortened(n["where"], PLACE_MAX)
        shown_needs.append((n["reference"], n["tool"], why, where))
    print_pairs(shown_needs)
    further = dict.fromkeys(
        runnable(f"effectonce {FURTHER[need['why']]}") for need in needs[SHOWN:]
    )
    lines = ["", "The story of one: " + runnable(f"effectonce effect show {needs[0]['reference']}")]
    if further:
        left = f"{'At least ' * data['more']}{len(needs) - SHOWN:,} more"
        lines += [f"{left}:", *(f"  {command}" for command in further)]
    screen.print("\n".join(lines), style="dim", markup=False, highlight=False, soft_wrap=True)
