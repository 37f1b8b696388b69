"""The pages. Each only looks, and is a function of one visit in a thread: it asks the store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from effectonce._core.ops import Browse
from effectonce._core.pages import Recent, Recently, Refer
from effectonce._core.record import Record, State
from effectonce.approvals._links import link_of
from effectonce.approvals._standing import standing_of, waits
from effectonce.dashboard._allowances import allowances
from effectonce.dashboard._approvals import approvals, asked_for
from effectonce.dashboard._prevented import prevented
from effectonce.dashboard._request import DashboardRequest, RefusedVisit
from effectonce.dead_letters._letter import is_dead
from effectonce.dead_letters._letters import GRACE_S, undiscardable
from effectonce.recovery.in_doubt import place
from effectonce.views.audit import describe as describe_entry
from effectonce.views.audit import entries_about, is_there
from effectonce.views.breakers import NOT_SHARED, circuits_of, standing
from effectonce.views.doubts import grouped, where_of
from effectonce.views.effects import (
    STATES,
    abandoned,
    arguments_of,
    decided_state,
    is_sealed,
    may_resend,
    outcome_of,
    place_of,
    reference,
    shown_state,
    verdict,
)
from effectonce.views.history import is_run, partial_of, run_of, run_verdict
from effectonce.views.runs import as_data as run_data
from effectonce.views.runs import steps_of, to_decide, whole, why_of
from effectonce.views.status import look
from effectonce.views.text import Screen, dumps
from effectonce.views.timeline import MARK, facts_of, not_kept, timeline
from effectonce.views.times import since_when
from effectonce.views.tools import prober_of, tools_of

if TYPE_CHECKING:
    from effectonce.dead_letters import Wanted

PAGE, NEEDS, AUDIT = 50, 20, 100  # rows of a list, of what needs a person, of an audit
LOOKED_AT = 1000  # records that are read for one page, however many there are
RUN_STATES = {"open": State.CLAIMED, "completed": State.COMPLETED, "failed": State.FAILED}
DONE: dict[str, tuple[str, tuple[str, ...]]] = {
    "confirm": ("Written down: it happened.", (State.COMPLETED,)),
    "refute": ("Written down: it did not happen.", (State.FAILED,)),
    "retry": (
        "Written down: the next call sends the same request again, under the same key.",
        (State.CLAIMED,),
    ),
    "discard": ("Written down: it will not be done.", (State.FAILED,)),
    "approve": (
        "Written down: it may be sent. The next call with these arguments does that, once.",
        ("approved",),
    ),
    "reject": ("Written down: it will never be sent.", (State.FAILED,)),
    "reconcile": ("The downstream was asked, and it is settled.", (State.COMPLETED, State.FAILED)),
    "cancel": (
        (
            "Written down: it is to end. The process that runs it, or resumes it, compensates what"
            " was done."
        ),
        (State.CLAIMED, State.FAILED),
    ),
}  # what is shown after a decision, as long as the effect is in one of these states


def overview(visit: DashboardRequest) -> Response:
    """How many of what, and what needs a person."""
    status = look(visit.guard, visit.tenant, visit.shows)
    data = {"status": status, "needs": status["needs_you"][:NEEDS], "now": visit.now()}
    return visit.page("overview.html", section="overview", **data)


# ---------------------------------------------------------------- effects


def effects(visit: DashboardRequest) -> Response:
    """Those that fit what the URL asks for, the newest first."""
    now, problem, page = visit.now(), "", Recently(())
    try:
        page = _looked_at(visit, now)
    except ValueError as error:
        problem = str(error)
    asked = {name: visit.asked(name) for name in ("effect", "tool", "scope", "since", "after")} | {
        "state": _state(visit)
    }
    return visit.page(
        "effects.html",
        422 if problem else 200,
        section="effects",
        rows=[_row(record, now) for record in page.records],
        more=_further(visit, page),
        asked=asked,
        states=STATES,
        problem=problem,
        now=now,
    )


def _further(visit: DashboardRequest, page: Recently) -> str | None:
    """Where a list goes on."""
    visit.shows(record.request.key for record in page.records)
    if page.further is None:
        return None
    return visit.with_params(after=link_of(page.further.request.key))


def _looked_at(visit: DashboardRequest, now: float) -> Recently:
    known, named = visit.asked("find"), visit.asked("effect")
    if known.startswith("eff_"):
        known, named = "", known
    named = named.lower().removeprefix("eff_").rstrip("…")
    if re.fullmatch(r"[0-9a-f]{0,12}", named) is None:
        raise ValueError(
            f"{visit.asked('effect') or visit.asked('find')!r} is no reference: it is eff_ and 12"
            " digits, or the first of them"
        )
    state = _state(visit)
    if state and state not in STATES:
        raise ValueError(f"{state!r} is no state of an effect")
    since = since_when(visit.asked("since")) if visit.asked("since") else 0.0
    recent = Recent(
        tool=visit.asked("tool") or None,
        state=State(state) if state else None,
        tenant=visit.tenant,
        scope=visit.asked("scope") or None,
        since=now + since if since < 0 else since,
        after=visit.find(visit.asked("after")) if visit.asked("after") else None,
        limit=PAGE,
    )
    if known:
        found = visit.guard.search(known, tenant=visit.tenant, limit=PAGE)
    elif named:
        found = visit.guard.store.apply(Refer(named, visit.tenant, PAGE))
    else:
        return visit.guard.store.apply(recent)
    return Recently(tuple(r for r in found if recent.fits(r) and recent.state in (None, r.state)))


def _state(visit: DashboardRequest) -> str:
    """`in-doubt` and `in doubt` are what people type."""
    return visit.asked("state").replace("-", "_").replace(" ", "_")


def _row(record: Record, now: float) -> dict[str, Any]:
    return {
        "reference": reference(record),
        "tool": record.request.terms.tool,
        "state": "part" if partial_of(record) is not None else shown_state(record, now),
        "place": place_of(record),
        "sends": record.sends,
        "at": record.created_at,
        "decided_at": record.decided_at,
        "reason": record.reason,
        "is_run": is_run(record),
    }


def effect(visit: DashboardRequest) -> Response:
    """The proof: everything that is known about one effect, and what may be decided now."""
    return effect_page(visit, visit.find(visit.request.path_params["reference"]))


def effect_page(
    visit: DashboardRequest,
    record: Record,
    status: int = 200,
    problem: str = "",
    typed: dict[str, str] | None = None,
) -> Response:
    """The same, also where a person's input was invalid: they get it back."""
    now, guard = visit.now(), visit.guard
    reveal = visit.access.reveals and visit.asked("reveal") == "on"
    screen = Screen(reveal=reveal)
    revealed = _revealed(record) if reveal else {}
    audited = is_there(guard)
    read = audited and visit.asked("audit") == "on"  # it takes its time where it is large
    entries = entries_about(guard, record, reference(record)) if read else []
    if (run := run_of(record)) is not None:
        visit.shows_run(run, record)
    return visit.page(
        "effect.html",
        status,
        section="effects",
        row=_row(record, now),
        mark=MARK.get(shown_state(record, now), "…"),
        verdict=verdict(record, now),
        facts=[fact for fact in facts_of(record, now, screen) if fact[0] not in revealed],
        timeline=timeline(record, now, screen, entries),
        not_kept=not_kept(record, audited=read and bool(entries)),
        entries=[(entry, describe_entry(entry)) for entry in entries[-AUDIT:]],
        audit="read" if read else "there" if audited else "",
        left_out=max(0, len(entries) - AUDIT),
        partial=partial_of(record),
        run=run,
        may=_may(visit, record, now),
        wish=asked_for(visit, record) if waits(record, now) else None,
        seen=version_of(record, now),
        reveal=reveal,
        revealed=revealed,
        done=_done(visit, record),
        problem=problem,
        typed=typed or {},
        now=now,
    )


def _revealed(record: Record) -> dict[str, str]:
    """Arguments and result on lines of their own, for those who may see them."""
    details = {"arguments": arguments_of(record, reveal=True)}
    if record.outcome:
        details["outcome"] = outcome_of(record.outcome, reveal=True)
    return {name: dumps(each.value, 2) for name, each in details.items() if not each.text}


def _done(visit: DashboardRequest, record: Record) -> str:
    """A link must not say that something was decided which was not."""
    words, states = DONE.get(visit.asked("done"), ("", ()))
    return words if decided_state(record, visit.now()) in states else ""


def version_of(record: Record, now: float) -> str:
    """What a person saw when they decided. It changes when a decision would mean something else."""
    stands = f"{decided_state(record, now)}-{record.sends}"
    unsent = record.request.terms.approval and record.state is State.CLAIMED and record.sends == 0
    return f"{stands}-{record.request.fingerprint[:16]}" if unsent else stands


def _may(visit: DashboardRequest, record: Record, now: float) -> dict[str, bool]:
    """What can be done about it. Whether this visitor may do it is another question."""
    doubt, known = (
        record.state is State.IN_DOUBT,
        record.request.terms.tool in tools_of(visit.guard),
    )
    standing = standing_of(record, now)
    is_open = record.state in (State.CLAIMED, State.DISPATCHED) and not is_run(record)
    dead = is_open and is_dead(record, now, GRACE_S)
    return {
        "sealed": is_sealed(record),
        "settle": doubt,
        "retry": doubt and may_resend(record, now),
        "reconcile": doubt and prober_of(visit.guard, record) is not None,
        "approve": waits(record, now),
        "take_back": standing is not None and standing.state == "approved",
        "redrive": dead and known,
        "unknown": dead and not known,
        "discard": dead and not undiscardable(record, now),
        "sweep": abandoned(record, now) and not may_resend(record, now) and not doubt,
    }


# ---------------------------------------------------------------- what needs a person


GROUPED_MAX = 1000  # of a larger heap, the oldest: a page costs the same in a large store


def in_doubt(visit: DashboardRequest) -> Response:
    """What is in doubt: by cause, and each, the oldest first."""
    after = place(visit.find(visit.asked("after"))) if visit.asked("after") else (0.0, "")
    records = visit.guard.store.apply(Browse(State.IN_DOUBT, visit.tenant, after, PAGE + 1))
    shown, now = records[:PAGE], visit.now()
    visit.shows(record.request.key for record in shown)
    more = visit.with_params(after=link_of(shown[-1].request.key)) if len(records) > PAGE else None
    rows = [
        {
            **_row(r, now),
            "probe": prober_of(visit.guard, r) is not None,
            "again": may_resend(r, now),
        }
        for r in shown
    ]
    some = visit.guard.store.apply(Browse(State.IN_DOUBT, visit.tenant, after, GROUPED_MAX))
    return visit.page(
        "in_doubt.html",
        groups=grouped(visit.guard, some, now),
        partly=len(some) == GROUPED_MAX,
        where=where_of(visit.guard),
        section="in_doubt",
        rows=rows,
        more=more,
        first=not visit.asked("after"),
        now=now,
    )


def wanted_of(visit: DashboardRequest) -> Wanted:
    """Which letters the URL asks for. An empty error is a filter, too: letters without one."""
    params = visit.request.query_params
    wanted: Wanted = {"tenant": visit.tenant}
    if "tool" in params:
        wanted["tool"] = params["tool"]
    if "error" in params:
        wanted["error"] = params["error"]
    return wanted


def group_of(visit: DashboardRequest) -> dict[str, str]:
    """The same in words, and as a query."""
    wanted = wanted_of(visit)
    error = {"error": wanted["error"] or "no error recorded"} if "error" in wanted else {}
    name = ": ".join([wanted.get("tool", "all tools"), *error.values()])
    return {"name": name, "query": visit.with_params(after=None, live=None)}


def letters(visit: DashboardRequest) -> Response:
    """What gave up: by tool and error, and one by one."""
    dead, wanted, now = visit.guard.dead_letters, wanted_of(visit), visit.now()
    chosen = "tool" in wanted or "error" in wanted
    after = place(visit.find(visit.asked("after"))) if visit.asked("after") else (0.0, "")
    found = dead.page(limit=PAGE, after=after, looked_at=LOOKED_AT, **wanted) if chosen else None
    groups = () if chosen else dead.groups(limit=LOOKED_AT, **wanted)
    shown, further = ((), None) if found is None else (found.letters, found.after)
    visit.shows(letter.key for letter in shown)
    more = None if further is None else visit.with_params(after=link_of(further[1]))
    return visit.page(
        "letters.html",
        section="letters",
        groups=groups,
        first=LOOKED_AT if sum(group.count for group in groups) == LOOKED_AT else 0,
        letters=shown,
        chosen=chosen,
        group=group_of(visit),
        place_of=place_of,
        is_run=is_run,
        more=more,
        now=now,
    )


def breakers(visit: DashboardRequest) -> Response:
    """How the dependencies behind the tools stand."""
    found = []
    for name, (circuit, tools) in sorted(circuits_of(visit.guard).items()):
        stats = circuit.stats()
        alone = {**NOT_SHARED, "why": stats.why}  # how it stands here says nothing about others
        votes = alone if circuit.shared is None else standing(circuit.shared, name)
        about = {"name": name, "tools": tools, "shared": circuit.shared is not None}
        found.append({**about, "here": stats, **votes})
    data = {"breakers": found, "tools": bool(tools_of(visit.guard)), "now": visit.now()}
    return visit.page("breakers.html", section="breakers", **data)


# ---------------------------------------------------------------- workflows


def workflows(visit: DashboardRequest) -> Response:
    """The runs in one state, the newest first."""
    state = visit.asked("state") or "open"
    if state not in RUN_STATES:
        text = f"Runs are {', '.join(RUN_STATES)}, not {state!r}."
        raise RefusedVisit(422, "There is no such state", text)
    now = visit.now()
    after = visit.find(visit.asked("after")) if visit.asked("after") else None
    recent = Recent(state=RUN_STATES[state], tenant=visit.tenant, after=after, limit=LOOKED_AT)
    page = _first_runs(visit.guard.store.apply(recent))
    return visit.page(
        "workflows.html",
        section="workflows",
        rows=[run_data(record, now) for record in page.records],
        more=_further(visit, page),
        first=after is None,
        state=state,
        states=RUN_STATES,
        why_of=why_of,
        now=now,
    )


def _first_runs(page: Recently) -> Recently:
    """The runs among these records, as many as a page has, and where the next one begins."""
    runs = tuple(record for record in page.records if is_run(record))
    return Recently(runs[:PAGE], runs[PAGE - 1] if len(runs) > PAGE else page.further)


def workflow(visit: DashboardRequest) -> Response:
    """One run with its steps."""
    record, now = visit.find(visit.request.path_params["reference"]), visit.now()
    if not is_run(record):
        ref = reference(record)
        link = (visit.href("effect", reference=ref), "See the effect")
        text = f"{ref} is an effect, and no run of a workflow."
        raise RefusedVisit(404, "No run", text, link=link)
    steps = steps_of(visit.guard, record)
    visit.shows(step.request.key for step in steps)
    run = whole(record, steps, now, reveal=False)
    return visit.page(
        "workflow.html",
        section="workflows",
        run=run,
        states={reference(step): shown_state(step, now) for step in steps},
        to_decide=to_decide(steps, now),
        why=why_of(run),
        verdict=run_verdict(record, now),
        sealed=is_sealed(record),
        begun=record.created_at,
        seen=version_of(record, now),
        done=_done(visit, record),
        now=now,
    )


PAGES = (
    ("/", "overview", overview),
    ("/effects", "effects", effects),
    ("/effects/{reference}", "effect", effect),
    ("/approvals", "approvals", approvals),
    ("/in-doubt", "in_doubt", in_doubt),
    ("/letters", "letters", letters),
    ("/allowances", "allowances", allowances),
    ("/prevented", "prevented", prevented),
    ("/breakers", "breakers", breakers),
    ("/workflows", "workflows", workflows),
    ("/workflows/{reference}", "workflow", workflow),
)
