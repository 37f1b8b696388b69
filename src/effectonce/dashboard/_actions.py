"""What people decide: by POST, with a reason, under the name from `access`, about what they saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from effectonce._core.effect_ref import EffectRef
from effectonce._core.record import Record, State
from effectonce._core.strict_json import read_exactly
from effectonce._core.tagged_json import NotReadable
from effectonce._validate import who
from effectonce.approvals._links import link_of
from effectonce.dashboard._groups import GROUP_ACTS, GROUP_LOOKS
from effectonce.dashboard._lists import PAGE, group_of, wanted_of
from effectonce.dashboard._pages import effect_page, version_of
from effectonce.dashboard._request import UNCHANGED, DashboardRequest, RefusedVisit, reason_of
from effectonce.dashboard._resuming import resume_run
from effectonce.dashboard._tools import TOOL_ACTS
from effectonce.dead_letters import Letter, Redriven
from effectonce.dead_letters._letters import undiscardable
from effectonce.errors import ContractViolation
from effectonce.recovery.pace import Pace
from effectonce.views.effects import is_sealed, reference, verdict
from effectonce.views.letters import WHAT
from effectonce.views.times import span_s
from effectonce.views.tools import prober_of, tools_of

# letters of one redrive, how fast, and how many are foreseen
AT_ONCE, PER_S, LOOKED_AT = 25, 10.0, 500
PACES = (10, 5, 1)  # a second


async def decide(visit: DashboardRequest) -> Response:
    """Settle, approve, reject, discard or cancel one effect."""
    form = await visit.form()
    return await run_in_threadpool(_decide, visit, visit.request.path_params["act"], form)


def _decide(visit: DashboardRequest, act: str, form: dict[str, str]) -> Response:
    record = visit.find(visit.request.path_params["reference"])
    _refuse_stale(visit, record, form)
    if is_sealed(record):
        text = "There is no key here, and what you say has to be sealed, too."
        raise RefusedVisit(409, "This store is sealed", text, UNCHANGED)
    key, by, reason = record.request.key, visit.access.who, form.get("reason", "").strip()
    if act == "cancel":
        reason_of(form)
    try:
        who(by, reason)
        result = _result(form) if act == "confirm" else None
        valid_s = span_s(form["for"].strip()) if form.get("for", "").strip() else None
    except (ContractViolation, ValueError, ArithmeticError, RecursionError) as error:
        why = str(error) if reason else "Say why: it stays on the record"
        return effect_page(visit, record, 422, f"{why}. {UNCHANGED}", {**form, "act": act})
    guard, decision = visit.guard, {"by": by, "reason": reason}
    try:
        match act:
            case "confirm":
                guard.confirm(key, result=result, **decision)
            case "refute":
                guard.refute(key, **decision)
            case "retry":
                guard.retry(key, **decision)
            case "discard":
                guard.dead_letters.discard(key, **decision)
            case "approve":
                seen = form.get("fingerprint", "")
                guard.approvals.approve(key, fingerprint=seen, valid_s=valid_s, **decision)
            case "reject":
                guard.approvals.reject(key, **decision)
            case "cancel":
                guard.workflows.cancel(key, **decision)
            case _:
                text = f"{act!r} is nothing that can be decided."
                raise RefusedVisit(404, "There is no such decision", text, UNCHANGED)
    except ContractViolation as error:
        _refuse_stale(visit, visit.find(link_of(key)), form)  # another person was quicker
        why = f"That was refused: {error}. {UNCHANGED}"
        return effect_page(visit, record, 409, why, {**form, "act": act})
    page = "workflow" if act == "cancel" else "effect"
    return visit.go(page, {"done": act}, reference=reference(record))


def _result(form: dict[str, str]) -> Any:
    """What every later call gets."""
    given = form.get("result", "").strip()
    if not given:
        raise ValueError("Give the result that every later call gets, as JSON (null is one)")
    try:
        return read_exactly(given)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise ValueError(f'{error}. A text needs quotes: "done"') from None


def _refuse_stale(visit: DashboardRequest, record: Record, form: dict[str, str]) -> None:
    """A decision is about what a person saw. If that has changed, they should look again."""
    at = visit.now()
    if form.get("seen") == version_of(record, at):
        return
    ref = reference(record)
    before, now = _stood(form.get("seen", "")), _stood(version_of(record, at))
    text = "The form does not say what you saw"
    if before:
        text = f"When you opened the page it was {before}"
    if before == now and record.sends == 0:
        text += ", and its arguments are others since."
    elif before == now:
        text += ", and it was sent once more since."
    else:
        text += f"; now it is {now}. {verdict(record, at)}"
    link = (visit.href("effect", reference=ref), f"See {ref} as it is now")
    raise RefusedVisit(409, "It changed meanwhile", text, UNCHANGED, link)


def _stood(version: str) -> str:
    """The state that a version begins with, in words."""
    words = {"needs_approval": "waiting for approval", "approved": "approved and not used"}
    state = version.partition("-")[0]
    return words.get(state, state.replace("_", " "))


# ---------------------------------------------------------------- by the tools themselves


async def reconcile(visit: DashboardRequest) -> Response:
    """Ask the downstream about one effect in doubt, by the tool's probe."""
    form = await visit.form()
    record = await run_in_threadpool(_seen, visit, form)
    tool = prober_of(visit.guard, record)
    if tool is None or record.state is not State.IN_DOUBT:
        text = "No tool of this guard has a probe for this effect."
        raise RefusedVisit(409, "There is no probe to ask", text, UNCHANGED)
    try:
        if tool.is_async:
            outcome = await tool.areconcile(record)
        else:
            outcome = await run_in_threadpool(tool.reconcile, record)
    except NotReadable as error:
        text = f"Its arguments cannot be read: {error}."
        raise RefusedVisit(409, "It cannot be asked about", text, UNCHANGED) from None
    if outcome.status != "in_doubt":
        return visit.go("effect", {"done": "reconcile"}, reference=reference(record))
    after = await run_in_threadpool(visit.find, link_of(record.request.key))
    said = f"The downstream was asked: {outcome.error}"
    return await run_in_threadpool(effect_page, visit, after, 200, said)


def _seen(visit: DashboardRequest, form: dict[str, str]) -> Record:
    record = visit.find(visit.request.path_params["reference"])
    _refuse_stale(visit, record, form)
    return record


async def redrive(visit: DashboardRequest) -> Response:
    """Call the tool of one letter again, under the same key."""
    form = await visit.form()
    record = await run_in_threadpool(_seen, visit, form)
    reason = reason_of(form)
    came = await _redriven(visit, record.request.key, record.request.terms.tool, reason)
    return await run_in_threadpool(_came_to, visit, [came], 0)


async def _redriven(visit: DashboardRequest, key: str, tool: str, reason: str) -> Redriven:
    letters, by = visit.guard.dead_letters, visit.access.who
    known = tools_of(visit.guard).get(tool)
    if known is not None and known.is_async:
        return await letters.aredrive(key, by=by, reason=reason)
    return await run_in_threadpool(letters.redrive, key, by=by, reason=reason)


def foresee(visit: DashboardRequest) -> Response:
    """What redriving the letters of a group would do. Nothing is sent."""
    letters, found, now = visit.guard.dead_letters, _letters(visit), visit.now()
    foreseen = [letters.foresee(letter.key) for letter in found]
    discards = sum(not undiscardable(letter.record, now) for letter in found)
    due = sum(each.what == "would_run" for each in foreseen)
    visit.shows(each.effect.key for each in foreseen[:PAGE])
    return visit.page(
        "foreseen.html",
        section="letters",
        foreseen=foreseen[:PAGE],
        looked_at=len(foreseen),
        full=len(foreseen) == LOOKED_AT,
        due=due,
        at_once=min(due, AT_ONCE),
        discards=discards,
        discards_at_once=min(discards, AT_ONCE),
        paces=PACES,
        group=group_of(visit),
        words=WHAT,
        now=visit.now(),
    )


def _letters(visit: DashboardRequest) -> tuple[Letter, ...]:
    return visit.guard.dead_letters.list(limit=LOOKED_AT, **wanted_of(visit))


async def redrive_group(visit: DashboardRequest) -> Response:
    """Redrive some letters of a group, oldest first, one by one. The rest are letters as before."""
    form = await visit.form()
    reason, pace = reason_of(form), _pace(form)
    done: list[Redriven] = []
    left = 0
    for letter in await run_in_threadpool(_letters, visit):
        foreseen = await run_in_threadpool(visit.guard.dead_letters.foresee, letter.key)
        if foreseen.what != "would_run":
            continue
        if len(done) == AT_ONCE:
            left += 1
            continue
        if done:
            await anyio.sleep(pace.next_s())
        done.append(await _redriven(visit, letter.key, letter.tool, reason))
    return await run_in_threadpool(_came_to, visit, done, left)


async def discard_group(visit: DashboardRequest) -> Response:
    """Discard some letters of a group, oldest first. What may not be is left, and says why."""
    form = await visit.form()
    reason, pace = reason_of(form), _pace(form)
    found = await run_in_threadpool(_discardable, visit)
    done: list[DiscardedLetter] = []
    for letter in found[:AT_ONCE]:
        if done:
            await anyio.sleep(pace.next_s())
        done.append(await run_in_threadpool(_discarded, visit, letter, reason))
    return await run_in_threadpool(_came_to, visit, done, len(found) - len(done))


class DiscardedLetter(NamedTuple):
    """What came of one letter."""

    effect: EffectRef
    what: str
    why: str


def _discardable(visit: DashboardRequest) -> list[Letter]:
    now = visit.now()
    return [letter for letter in _letters(visit) if not undiscardable(letter.record, now)]


def _discarded(visit: DashboardRequest, letter: Letter, reason: str) -> DiscardedLetter:
    try:
        visit.guard.dead_letters.discard(letter.key, by=visit.access.who, reason=reason)
    except ContractViolation as error:  # another person was quicker
        return DiscardedLetter(letter.effect, "skipped", str(error))
    return DiscardedLetter(letter.effect, "discarded", "")


def _pace(form: dict[str, str]) -> Pace:
    """How fast, as a form says it; as fast as it may be if it says nothing."""
    given = form.get("pace", "")
    return Pace(min(PER_S, float(given)) if given in map(str, PACES) else PER_S)


def _came_to(
    visit: DashboardRequest, done: Sequence[Redriven | DiscardedLetter], left: int
) -> Response:
    visit.shows(each.effect.key for each in done)
    counts = Counter(WHAT[each.what] for each in done)
    data = {"done": done, "counts": counts, "left": left, "words": WHAT, "now": visit.now()}
    return visit.page("redriven.html", section="letters", **data)


LOOKS = (("/letters/redrive", "foresee", foresee), *GROUP_LOOKS)
ACTS = (
    *GROUP_ACTS,
    *TOOL_ACTS,
    ("/letters/redrive", "redrive_group", redrive_group),
    ("/letters/discard", "discard_group", discard_group),
    ("/workflows/{reference}/resume", "resume_run", resume_run),
    ("/effects/{reference}/reconcile", "reconcile", reconcile),
    ("/effects/{reference}/redrive", "redrive", redrive),
    ("/effects/{reference}/{act}", "decide", decide),
)
