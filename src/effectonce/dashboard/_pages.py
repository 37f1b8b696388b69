"""The pages. Each only looks, and is a function of one visit in a thread: it asks the store."""

from __future__ import annotations

from starlette.responses import Response

from effectonce._core.record import Record, State
from effectonce.approvals._standing import standing_of, waits
from effectonce.dashboard._allowances import allowances
from effectonce.dashboard._approvals import approvals, asked_for
from effectonce.dashboard._lists import effects, in_doubt, letters, row_of, workflows
from effectonce.dashboard._prevented import prevented
from effectonce.dashboard._request import DashboardRequest, RefusedVisit
from effectonce.dashboard._tools import tools
from effectonce.dead_letters._letter import is_dead
from effectonce.dead_letters._letters import GRACE_S, undiscardable
from effectonce.views.audit import describe as describe_entry
from effectonce.views.audit import entries_about, is_there
from effectonce.views.breakers import NOT_SHARED, circuits_of, standing
from effectonce.views.doubts import where_of
from effectonce.views.effects import (
    abandoned,
    arguments_of,
    decided_state,
    is_sealed,
    may_resend,
    outcome_of,
    reference,
    shown_state,
    verdict,
)
from effectonce.views.history import is_run, partial_of, run_of, run_verdict
from effectonce.views.runs import steps_of, to_decide, whole, why_of
from effectonce.views.status import look
from effectonce.views.text import Screen, dumps
from effectonce.views.timeline import MARK, facts_of, not_kept, timeline
from effectonce.views.tools import prober_of, tools_of

NEEDS, AUDIT = 20, 100  # rows of what needs a person, of an audit
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
    "resume": ("It went on, and has an outcome.", (State.COMPLETED, State.FAILED)),
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
        row=row_of(record, now),
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


# ---------------------------------------------------------------- dependencies


def breakers(visit: DashboardRequest) -> Response:
    """How the dependencies behind the tools stand."""
    found = []
    for name, (circuit, theirs) in sorted(circuits_of(visit.guard).items()):
        stats = circuit.stats()
        alone = {**NOT_SHARED, "why": stats.why}  # how it stands here says nothing about others
        votes = alone if circuit.shared is None else standing(circuit.shared, name)
        about = {"name": name, "tools": theirs, "shared": circuit.shared is not None}
        found.append({**about, "here": stats, **votes})
    data = {"breakers": found, "tools": bool(tools_of(visit.guard)), "now": visit.now()}
    return visit.page("breakers.html", section="breakers", **data)


# ---------------------------------------------------------------- workflows


def workflow(visit: DashboardRequest) -> Response:
    """One run with its steps."""
    return run_page(visit, visit.find(visit.request.path_params["reference"]))


def run_page(visit: DashboardRequest, record: Record, problem: str = "") -> Response:
    """The same, also after it was tried to go on with it."""
    now = visit.now()
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
        resumable=record.request.terms.tool in tools_of(visit.guard),
        command=f"effectonce workflow resume {reference(record)} --app MODULE:GUARD",
        store=where_of(visit.guard).removeprefix(" --store "),
        problem=problem,
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
    ("/tools", "tools", tools),
    ("/breakers", "breakers", breakers),
    ("/workflows", "workflows", workflows),
    ("/workflows/{reference}", "workflow", workflow),
)
