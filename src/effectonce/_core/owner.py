"""The owner of a record: what a call holds, and what it writes. What is decided stands in call.py.

Every write is fenced by the owner's token and epoch. One that is not acknowledged is repeated with
the same token, within bounds.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from effectonce._core.allowances import Owner, Spend, hold_all
from effectonce._core.attempt_log import failed_attempt, left
from effectonce._core.budget import TurnState
from effectonce._core.classification.verdicts import Verdict
from effectonce._core.codec import printable
from effectonce._core.endings import (
    Again,
    Ending,
    Exhausted,
    Fenced,
    Fresh,
    Lost,
    NothingSent,
    OverLimit,
    Replay,
    Undetermined,
    Unmet,
)
from effectonce._core.guarantees import Capability, unasked
from effectonce._core.ops import (
    Answer,
    Applied,
    Ask,
    Attest,
    Busy,
    Cell,
    Claim,
    ClaimReply,
    Complete,
    Dispatch,
    Doubt,
    Fail,
    Find,
    Flow,
    Found,
    Held,
    Interrupted,
    Keep,
    Latched,
    NotFound,
    Ok,
    Op,
    Recorded,
    Refused,
    Refute,
    Renew,
    Sleep,
    Together,
    Unapproved,
    Unavailable,
    Unsend,
    WriteReply,
)
from effectonce._core.pauses import LOOK, PausedCircuit
from effectonce._core.preconditions import (
    BY,
    UNMET,
    WHY,
    CheckPrecondition,
    is_new_wish,
)
from effectonce._core.probe_answers import in_vain, unusable, why_unsettled
from effectonce._core.record import PROBE, Record, Request, State
from effectonce._core.retry_state import (
    NO_LIMIT,
    Admission,
    Env,
    Plan,
    RetryState,
    W,
    insist,
    persist,
    repeated,
)
from effectonce._core.safe_access import get

GONE = Refused(None)
POLL_FIRST_S, POLL_MAX_S, POLL_GROWTH = 0.004, 0.25, 1.6


class RecordOwner:
    """The writes of the worker that holds a record."""

    token, epoch, sends, stored, unaided = "", 0, 0, b"", False
    spends: tuple[Spend, ...] = ()  # what it takes out of allowances
    precondition = False  # whether it holds is asked before the first send
    probes_first = False  # and the probe, whether it has happened already
    conditional = False  # one of these has to be asked before anything may leave
    held_as = ""  # the token under which it holds that
    asked_by = ""  # who asks for an approval, where one is needed
    unanswered: BaseException | None = None  # the last send of this call that got no answer

    def __init__(
        self,
        request: Request,
        plan: Plan,
        env: Env,
        *,
        again: bool = False,
        turn: TurnState | None = None,
        step: str = "",
    ) -> None:
        self.request, self.plan, self.env, self.again = request, plan, env, again
        self.key, how = request.key, plan.retrying
        self.in_transaction = request.terms.downstream is Capability.TRANSACTION
        self.admission = (
            NO_LIMIT
            if how.circuit is None and how.tokens is None
            else Admission(how.circuit, how.tokens)
        )
        self.patience = RetryState(how, env, turn, step)

    @property
    def _repeatable(self) -> bool:
        """May the last attempt be sent again, although it may have happened?"""
        return self.request.terms.resend_s > 0 and not self.unaided

    @property
    def _sent_request(self) -> Request:
        """To write it anew: what was sent was approved, and no person is asked again."""
        return structs.replace(self.request, terms=unasked(self.request.terms))

    def _claim(self) -> Flow[tuple[ClaimReply, bool]]:
        """Claim the effect; wait, within bounds, while another worker works on it."""
        self.token = self.env.new_token()
        request = self.request
        apart = self.plan.separate_dispatch or self.in_transaction  # a write of its own
        dispatch = not (apart or request.terms.approval or self.conditional)
        claim = Claim(request, self.token, self.plan.lease_s, dispatch, self.again, self.asked_by)
        wait_until = min(self.patience.give_up_at, self.env.now() + self.plan.wait_s)
        pause_s, waited = POLL_FIRST_S, False
        while True:
            reply = yield claim
            if type(reply) is Unavailable:
                reply = yield from repeated(claim, reply, self.env)
            if type(reply) is Recorded:  # first, because nothing is asked for as often
                return reply, waited
            match reply:
                case Held(epoch, sends):
                    self.epoch, self.sends = epoch, sends
                    return reply, waited
                case Busy(float() as busy_s) | Latched(retry_after_s=float() as busy_s):
                    left_s = wait_until - self.env.now()
                    if left_s <= 0:
                        return reply, waited
                    slept = yield from Sleep(min(busy_s, left_s, pause_s * (0.5 + self.env.rng())))
                    if isinstance(slept, Interrupted):
                        return reply, waited
                    pause_s, waited = min(POLL_MAX_S, pause_s * POLL_GROWTH), True
                    claim = Claim(
                        request, self.token, self.plan.lease_s, dispatch, True, self.asked_by
                    )
                case _:
                    return reply, waited

    def _paused(self) -> Flow[PausedCircuit | Unavailable | None]:
        """Has a person paused the tool? Then nothing leaves."""
        pauses = self.env.pauses
        if pauses is None:
            return None
        now = self.env.now()
        if now >= pauses.fresh_until:
            cell: Cell | Unavailable = yield LOOK
            if isinstance(cell, Unavailable):
                cell = yield from repeated(LOOK, cell, self.env)
            if isinstance(cell, Unavailable):
                return cell
            pauses.see(cell, now)
        return pauses.circuit(self.request.terms.tool)

    def _let_go(self, *, dispatched: bool) -> Flow[None]:
        """Nothing leaves after all: the next caller need not wait for our lease."""
        if dispatched:
            yield from self._take_back(0)
        else:
            yield from Renew(self.key, self.token, self.epoch, 0)

    def _admit(self) -> Flow[Ending | Again | None]:
        """Ask all that has to be asked before anything leaves. None: it may be sent."""
        if self.probes_first and self._untouched:
            ending = yield from self._ask_first()
            if ending is not None:
                return ending
        if self.spends:
            over = yield from self._hold()
            if over is not None:
                return over
        if not self._checks:
            return None
        answer = yield from CheckPrecondition(self.key, self.token, self.epoch)
        if answer == Ok(True):
            return None
        yield from insist(Renew(self.key, self.token, self.epoch, 0), self.env)
        if not isinstance(answer, Ok):
            return NothingSent(answer.error, 0, exhausted=False)
        # What has no owner can be ended as by a person. If another caller sends it meanwhile, this
        # is refused.
        end = Refute(self.key, UNMET, BY, WHY, self.request.fingerprint)
        reply: WriteReply = yield from insist(end, self.env)
        if isinstance(reply, Unavailable):
            return reply
        return Unmet(stored=True) if isinstance(reply, Applied) else Again()

    def _ask_first(self) -> Flow[Ending | Again | None]:
        """Ask the probe before the first send, as often as that may be tried. None: it has not
        happened.
        """
        if not self.plan.has_probe:
            yield from self._let_go(dispatched=False)
            why = f"it has none here: register one with @{self.request.terms.tool}.probe"
            return Undetermined(why, unusable=True)
        patience = self.patience.anew()
        while True:
            answer = yield from Ask(self.key, self.token, self.epoch)
            if isinstance(answer, Ok) and isinstance(answer.value, Found | NotFound):
                patience.went_well()
                if isinstance(answer.value, NotFound):
                    return None
                return (yield from self._found_first(answer.value.result))
            patience.attempt += 1
            error, verdict = in_vain(answer, self.plan.retrying.classify)
            then = yield from patience.after(error, verdict, repeatable=False)
            if then.delay_s is None:
                yield from insist(Renew(self.key, self.token, self.epoch, 0), self.env)
                yield from self._leave(None, patience.attempt, error, verdict, then.why)
            elif (yield from self._pause(then.delay_s)):
                continue
            after_s = verdict.retry_after_s or get(error, "retry_after_s")
            return Undetermined(
                why_unsettled(answer), error, unusable(answer), then.why, patience.attempt, after_s
            )

    def _found_first(self, result: Any) -> Flow[Ending | Again]:
        """It had happened before anything was sent from here."""
        over = (yield from self._held(anyway=True)) if self.spends else None
        if over is None:
            outcome = self.plan.encode(result)
            end = Complete(self.key, self.token, self.epoch, outcome, PROBE)
            reply: WriteReply = yield from self._write_down(end)
            if not isinstance(reply, Refused):
                recorded = isinstance(reply, Applied)
                return Fresh(result, recorded, PROBE, outcome if recorded else b"", 0)
        yield from Renew(self.key, self.token, self.epoch, 0)
        return Again() if over is None else over

    @property
    def _checks(self) -> bool:
        """Is its precondition asked?"""
        return self.precondition and self._untouched

    @property
    def _untouched(self) -> bool:
        """Can nothing have left? Later, a look may show the effect itself."""
        return self.sends == 0 and self.patience.attempt == 0

    def _may_ask(self, wish: Request) -> Flow[Ending | None]:
        """Why no person is to be asked for this. None: one may be, or was before."""
        if not (wish.terms.approval and self._checks):
            return None
        found: Record | Unavailable | None = yield from Find(self.key)
        if isinstance(found, Unavailable):
            return found
        if not is_new_wish(found, wish):
            return None
        answer = yield from CheckPrecondition(self.key)
        if isinstance(answer, Ok):
            return None if answer.value else Unmet(stored=False)
        return NothingSent(answer.error, 0, exhausted=False)

    def _dispatch(self) -> Flow[Ending | Again | None]:
        """Write down that the next request may leave. None: it may."""
        op = Dispatch(self.key, self.token, self.epoch, self.sends + 1, self.plan.lease_s)
        reply: WriteReply = yield from insist(op, self.env)
        match reply:
            case Applied():
                self.sends += 1
                return None
            case Refused():
                if (
                    reply == GONE
                    and self.sends > 0
                    and (yield from self._sent_before(self.plan.lease_s))
                ):
                    return (yield from self._dispatch())
                # Another worker's by now, or sent before and the downstream no longer honours
                # our key. The claim will show.
                yield from Renew(self.key, self.token, self.epoch, 0)
                return Again()
            case Unavailable():
                return reply

    def _hold(self) -> Flow[Ending | Again | None]:
        """Hold what it may spend, before anything leaves. None: it is held. What was sent before
        may have been spent already, so it is held whatever is left.
        """
        over = yield from self._held(anyway=self.sends > 0)
        if over is None:
            return None
        yield from Renew(self.key, self.token, self.epoch, 0)
        if isinstance(over, OverLimit) and any(spend.over_approval for spend in self.spends):
            return (yield from self._hold_approved())
        return over

    def _hold_approved(self) -> Flow[Ending | Again | None]:
        """The same above the limit, if a person lets it."""
        terms = structs.replace(self.request.terms, approval=True)
        wish = structs.replace(self.request, terms=terms)
        refusal = yield from self._may_ask(wish)
        if refusal is not None:
            return refusal
        self.token = self.env.new_token()
        claim = Claim(wish, self.token, self.plan.lease_s, dispatch=False, asked_by=self.asked_by)
        reply: ClaimReply = yield from insist(claim, self.env)
        if isinstance(reply, Unapproved | Unavailable):
            return reply
        if not isinstance(reply, Held):
            return Again()  # another caller was faster: the claim will show
        self.epoch, self.sends = reply.epoch, reply.sends
        over = yield from self._held(anyway=True)
        if over is not None:
            yield from Renew(self.key, self.token, self.epoch, 0)
        return over

    def _held(self, *, anyway: bool) -> Flow[OverLimit | Unavailable | Again | None]:
        self.held_as = self.token
        owner = Owner(self.key, self.token, self.epoch, self.plan.lease_s)
        return (yield from hold_all(self.spends, owner, self.env, anyway=anyway))

    def _let_go_sent(self) -> Flow[WriteReply]:
        """It may have been sent: the next caller goes on at once."""
        reply: WriteReply = yield from insist(Renew(self.key, self.token, self.epoch, 0), self.env)
        if reply == GONE:
            yield from self._sent_before(0)
        return reply

    def _sent_before(self, lease_s: float) -> Flow[bool]:
        """The record is gone, and it was sent: write that anew. False: another caller has it."""
        claim = Claim(self._sent_request, self.token, lease_s, dispatch=True)
        reply = yield from insist(claim, self.env)
        if isinstance(reply, Held):
            self.epoch, self.sends = reply.epoch, reply.sends
        return isinstance(reply, Held)

    def _complete(self, value: Any, by: str = "") -> Flow[Ending]:
        outcome, self.stored = self.stored or self.plan.encode(value), b""
        if self.in_transaction and not by:
            return Fresh(value, outcome=outcome)  # written by the same COMMIT
        reply: WriteReply = yield (op := Complete(self.key, self.token, self.epoch, outcome, by))
        if not isinstance(reply, Applied):
            reply = yield from self._written(op, reply)
        match reply:
            case Applied():
                return Fresh(value, True, by, outcome, self.sends)
            case Unavailable():
                return Fresh(value, recorded=False, sends=self.sends)
            case Refused():
                return (yield from self._too_late(outcome, value))

    def _doubt_over(self, ending: Ending | Again, since_s: float) -> Ending | Again:
        """It was in doubt, and a probe had to be asked: how long that was is kept in the ending."""
        return structs.replace(ending, doubt_s=since_s) if isinstance(ending, Fresh) else ending

    def _probed(self, error: BaseException) -> Flow[tuple[Ending | None, Answer | None]]:
        """Ask the probe while the record is ours, after *error*. What it finds is written down;
        else its answer.
        """
        if not (self.plan.has_probe and isinstance(error, Exception)):
            return None, None
        answer = yield from Ask(self.key, self.token, self.epoch)
        if isinstance(answer, Ok) and isinstance(answer.value, Found):
            return (yield from self._complete(answer.value.result, by=PROBE)), answer
        return None, answer

    def _persist(self, op: Op[W], reply: Any) -> Flow[W]:
        return (yield from persist(op, reply, self.patience.give_up_at, self.env))

    def _write_down(self, op: Complete | Fail | Doubt) -> Flow[WriteReply]:
        return (yield from self._written(op, (yield op)))

    def _written(self, op: Complete | Fail | Doubt, reply: WriteReply) -> Flow[WriteReply]:
        """What came of it. A record that is gone was not taken over: it is written anew, or the
        next call would take it for the first.
        """
        if isinstance(reply, Unavailable):
            reply = yield from self._persist(op, reply)
        if reply != GONE or (
            isinstance(op, Fail) and (self.sends > 1 or self.unanswered is not None)
        ):
            # a refusal does not speak for a send before it, which the record that is gone knew of
            return reply
        token = self.env.new_token()
        claim = Claim(self._sent_request, token, self.plan.lease_s, dispatch=True)
        anew = Together((claim, structs.replace(op, token=token, epoch=1)))
        replies = yield from self._persist(anew, (yield anew))
        if isinstance(replies, Unavailable):
            if not isinstance(op, Doubt):
                yield from Keep(op)
            return replies
        if isinstance(replies[1], Applied):
            yield from Attest(self.key, "its record was gone when it ended, and was written anew")
        return replies[1]  # type: ignore[no-any-return]

    def _too_late(self, outcome: bytes, value: Any) -> Flow[Ending]:
        """We lost the record while the tool ran. Leave what we know; take any recorded outcome."""
        record = yield from Attest(
            self.key, "an owner that had lost its lease reports success", outcome
        )
        if isinstance(record, Record) and record.state is State.COMPLETED:
            return Replay(
                Recorded(record.state, record.outcome, 0.0, 0.0, record.settled_by), coalesced=True
            )
        return Fenced(value)

    def _unrecorded(self, error: BaseException) -> Ending:
        """It was refused, but that is not recorded: the next caller, unaware, may send it again."""
        if self.request.terms.resend_s > 0:
            return Exhausted(error, self.patience.attempt)
        return Lost(error, f"refused ({printable(error)}), but the store could not write that down")

    def _leave(
        self, last: object, number: int, error: BaseException, verdict: Verdict, gave_up: str | None
    ) -> Flow[None]:
        """Say on the record how an attempt ended, once, unless the store did not answer the
        *last* write: its state is the truth.
        """
        if not isinstance(last, Unavailable):
            yield left(
                self.key,
                failed_attempt(
                    number,
                    error,
                    verdict,
                    gave_up=gave_up if isinstance(error, Exception) else None,
                ),
            )

    def _pause(self, delay_s: float) -> Flow[bool]:
        """Wait, holding the claim. False: the caller was cancelled, and the claim is let go."""
        slept = yield from Sleep(delay_s)
        if isinstance(slept, Interrupted):
            yield from insist(Renew(self.key, self.token, self.epoch, 0), self.env)
        return slept is None

    def _take_back(self, lease_s: float) -> Flow[WriteReply]:
        """This attempt certainly had no effect: write that; with `lease_s=0`, let the claim go."""
        if self.in_transaction:
            return (yield from insist(Renew(self.key, self.token, self.epoch, lease_s), self.env))  # type: ignore[no-any-return]
        reply: WriteReply = yield from insist(
            Unsend(self.key, self.token, self.epoch, self.sends, lease_s), self.env
        )
        self.sends -= 1
        if isinstance(reply, Applied):
            self.epoch = reply.epoch
        return reply
