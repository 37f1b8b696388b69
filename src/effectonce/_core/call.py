"""The guarded call: the protocol, once, for sync and async.

Theory of operation. The flow asks for one thing at a time and gets its result back. It can be
stopped between any two lines and never go on; the next caller goes on from the record. What it
may do next is decided by the record's rules (rules.py), so the flow only has to know what it
wants:

  claim ──> invoke ──> complete      the ordinary call: two writes, the claim also dispatches
    │         ├─ certainly no effect ──> unsend ──> wait ──> dispatch ──> invoke …
    │         ├─ refused for good ─────> fail, or doubt if an older send may have landed
    │         └─ not known ────────────> again under its key, then ask the probe; or doubt
    ├─ known ──────> replay
    ├─ in doubt ───> ask the probe, if there is one
    └─ in flight ──> wait, within bounds

An error is never an excuse to forget: once the request may have left, only a rule that proves
otherwise takes it back. What the error says is left on the record as evidence, after the state
and before the next attempt.
"""

from __future__ import annotations

from typing import Any

from effectonce._core.allowances import settle_all
from effectonce._core.attempt_log import KEY_UNREAD, OUTSIDE, failed_attempt, in_the_outcome
from effectonce._core.classification.verdicts import (
    ANSWER_LOST,
    SURE,
    UNKNOWN,
    Basis,
    Certainty,
    Verdict,
)
from effectonce._core.codec import describe_error, encode_error, excuse, printable
from effectonce._core.decisions import Action
from effectonce._core.endings import (
    Again,
    Done,
    Ending,
    Exhausted,
    Fenced,
    Fresh,
    Lost,
    NothingSent,
    OutOfPatience,
    OverLimit,
    Rejection,
    Replay,
    Undetermined,
    Unmet,
    robbed,
)
from effectonce._core.observed_sends import Seen, of_another, of_attempt
from effectonce._core.ops import (
    Answer,
    Applied,
    Ask,
    Attest,
    Busy,
    Claim,
    Complete,
    Doubt,
    Doubtful,
    Fail,
    Find,
    Flow,
    Found,
    Held,
    Inquire,
    Invoke,
    Latched,
    NotFound,
    NotStarted,
    Ok,
    Raised,
    Recorded,
    Refused,
    Renew,
    Rerun,
    Transact,
    Unapproved,
    Unavailable,
    Unconfirmed,
    WriteReply,
)
from effectonce._core.owner import RecordOwner
from effectonce._core.pauses import PausedCircuit
from effectonce._core.probe_answers import interruption, why_given_up, why_unsettled
from effectonce._core.record import PROBE, TERMINAL, Record
from effectonce._core.retry_state import Admission, RetryDecision, insist
from effectonce._core.rules import outcome_pending
from effectonce._core.safe_access import get

NEVER = RetryDecision(Action.FAIL, "an error of another effect says nothing about this one")


class GuardedCall(RecordOwner):
    """One call of one effect. `flow()` is the generator to drive."""

    def flow(self) -> Flow[Ending]:
        pauses = self.env.pauses
        if pauses is not None and (pauses.tools or self.env.now() >= pauses.fresh_until):
            return self._flow_if_not_paused()
        return self._flow_as_declared()

    def _flow_if_not_paused(self) -> Flow[Ending]:
        paused = yield from self._paused()
        if isinstance(paused, Unavailable):
            return paused
        if paused is not None:
            self.admission = Admission(paused, None)
        return (yield from self._flow_as_declared())

    def _flow_as_declared(self) -> Flow[Ending]:
        if self.conditional:
            return self._flow_conditional()
        return self._flow() if self.admission.circuit is None else self._flow_behind()

    def _flow_conditional(self) -> Flow[Ending]:
        """What certainly had no effect gives back what it held; what happened has spent it."""
        refusal = yield from self._may_ask(self.request)
        ending: Ending = (yield from self._flow_behind()) if refusal is None else refusal
        spent = isinstance(ending, Fresh | Done)
        unsent = NothingSent | OutOfPatience | Undetermined
        nothing = isinstance(ending, unsent) and self.sends == 0
        if self.held_as and (spent or nothing or isinstance(ending, Rejection | Unmet)):
            yield from settle_all(self.spends, self.key, self.held_as, spent=spent)
        return ending

    def _flow_behind(self) -> Flow[Ending]:
        """Behind an open circuit, what is known is returned: an outcome, or a possible send."""
        refusal = self.admission.refusal()
        if refusal is not None:
            found: Record | Unavailable | None = yield from Find(self.key)
            if isinstance(found, Unavailable):
                return found
            if found is None or not (found.state in TERMINAL or outcome_pending(found)):
                return NothingSent(refusal, 0, exhausted=False)
        return (yield from self._flow())

    def _flow(self) -> Flow[Ending]:
        again = False
        while True:
            reply, waited = yield from self._claim()
            if type(reply) is Recorded:
                return Replay(reply, waited)
            match reply:
                case Held(dispatched=dispatched) if again and (why := self.patience.used_up()):
                    yield from self._let_go(dispatched=dispatched)
                    ending: Ending | Again = robbed(
                        self.patience.attempt, why, sent_before=self.sends > 0
                    )
                case Held(dispatched=dispatched):
                    ending = yield from self._own(dispatched=dispatched)
                case Doubtful() if self.plan.has_probe and self.admission.refusal() is None:
                    ending = self._doubt_over((yield from self._reconcile(reply)), reply.since_s)
                case _:
                    ending = reply
            if type(ending) is not Again:
                return (
                    ending
                    if self.unanswered is None
                    else (yield from self._as_maybe_sent(ending, self.unanswered))
                )
            again = True

    def _as_maybe_sent(self, ending: Ending, unanswered: BaseException) -> Flow[Ending]:
        """A call that may have sent something never ends as if it had not, whatever came later."""
        unsent = Unavailable | Busy | Latched | Unapproved | NothingSent | OutOfPatience | OverLimit
        if isinstance(ending, unsent):
            yield from self._leave(ending, 0, unanswered, UNKNOWN, "it could not go on")
            return Exhausted(unanswered, self.patience.attempt)
        return ending

    # ------------------------------------------------------------ own

    def _own(self, *, dispatched: bool) -> Flow[Ending | Again]:
        """Run the tool until its outcome is known, or known to be unknown."""
        patience, admission, refusal = self.patience, self.admission, ""
        closed = admission.refusal()
        if closed is None and patience.turn is not None:
            refusal = yield from patience.begin(again=patience.attempt > 0 or self.epoch > 1)
        if refusal:
            yield from self._let_go(dispatched=dispatched)
            return OutOfPatience(refusal)
        if self.conditional and closed is None:
            denial = yield from self._admit()
            if denial is not None:
                return denial
            late = self.patience.used_up()  # what had to be asked may have taken long
            if late and self.sends == 0:
                yield from self._let_go(dispatched=dispatched)
                return OutOfPatience(late, of_turn=False)
            closed = yield from self._closed()
        while True:
            if closed is None and not dispatched and not self.in_transaction:
                denial = yield from self._dispatch()
                if denial is not None:
                    return denial
                dispatched = True
            if closed is None:
                closed = admission.ask()
            if closed is not None:
                yield from self._let_go(dispatched=dispatched)
                return (yield from self._kept_back(closed))
            patience.attempt += 1
            call = (self.key, self.token, self.epoch, patience.attempt, patience.give_up_at)
            answer: Answer | Refused | Unavailable | Unconfirmed
            answer = yield Transact(*call) if self.in_transaction else Invoke(*call, self.sends > 1)
            ending: Ending | Again | None = None
            if isinstance(answer, Ok):
                admission.ended(None)
                self.stored = answer.stored
                return (yield from self._complete(answer.value))
            if not isinstance(answer, Raised):
                admission.release()
            match answer:
                case Refused():
                    # latched, or another worker's: the claim will show
                    yield from Renew(self.key, self.token, self.epoch, 0)
                    return Again()
                case Unavailable():
                    # if it arrives, no caller waits for our lease
                    yield from Renew(self.key, self.token, self.epoch, 0)
                    return answer
                case Unconfirmed(value, error):
                    ending = yield from self._resolve(value, error)
                case NotStarted(error):
                    yield from self._take_back(0)
                    return NothingSent(error, 0, exhausted=False)
                case Raised(error, unaided, seen):
                    self.unaided = unaided
                    ending = yield from self._failed(error, seen)
            if ending is not None:
                return ending
            closed = yield from self._closed()
            dispatched = False

    def _closed(self) -> Flow[Exception | None]:
        """Has a person paused the tool meanwhile, or has its breaker opened?"""
        paused = yield from self._paused()
        return (paused if isinstance(paused, PausedCircuit) else self.admission).refusal()

    def _kept_back(self, refusal: Exception) -> Flow[Ending]:
        """The circuit let nothing of ours through; an earlier unanswered send it did not stop."""
        # else `_as_maybe_sent` says it
        if self.patience.attempt > 0 and (self.sends > 0 or self.unanswered is None):
            yield from self._leave(
                None, 0, refusal, self.plan.retrying.classify(refusal), "its breaker is open now"
            )
        if self.sends > 0:
            error, attempts = (
                (refusal, 0)
                if self.unanswered is None
                else (self.unanswered, self.patience.attempt)
            )
            return Exhausted(error, attempts, get(refusal, "retry_after_s"))
        return NothingSent(refusal, self.patience.attempt, exhausted=False)

    def _resolve(self, value: Any, error: Exception) -> Flow[Ending | Again | None]:
        """COMMIT went unanswered, with the record in it. None: not done, and may be retried."""
        reply = yield from insist(
            Claim(self.request, self.token, self.plan.lease_s, dispatch=False), self.env
        )
        match reply:
            case Recorded(outcome=outcome):
                return (
                    Fresh(value, outcome=outcome)
                    if outcome == self.plan.encode(value)
                    else Replay(reply, coalesced=False)
                )
            case Held(epoch):
                self.epoch = epoch  # a lease that is over was taken again
                last = self.patience.used_up() != ""
                # This write waits for a COMMIT of ours that is still under way. If it is let
                # through, that one will never land.
                reply = yield from insist(
                    Renew(self.key, self.token, epoch, 0 if last else self.plan.lease_s), self.env
                )
                if isinstance(reply, Applied):
                    return Unavailable(error) if last else None
                self.unanswered = error
            case Unapproved():  # its approval ended meanwhile; our COMMIT may still land
                self.unanswered = error
            case _:
                pass
        return (
            Exhausted(error, self.patience.attempt) if isinstance(reply, Unavailable) else Again()
        )

    # ------------------------------------------------------------ errors

    def _failed(self, error: BaseException, seen: Seen | None) -> Flow[Ending | None]:
        """The tool raised. None: wait is over, try again."""
        if not self.in_transaction and of_another(error, self.key):
            self.admission.release()
            return (yield from self._ambiguous(error, UNKNOWN, NEVER))
        partial = self.plan.encode_partial(error)
        if partial is not None and not self.in_transaction:
            self.admission.release()
            reply = yield from self._write_down(Complete(self.key, self.token, self.epoch, partial))
            if isinstance(reply, Refused):
                yield from Attest(
                    self.key, "an owner that had lost its lease reports a partial success", partial
                )
            return Rejection(error)
        judged = self.plan.retrying.classify(error)
        if self.in_transaction and self.unaided and judged.bucket in ANSWER_LOST:
            return (yield from self._outside(error, judged))
        verdict = of_attempt(
            judged,
            seen,
            in_transaction=self.in_transaction,
            repeatable=self._repeatable,
            sent_before=self.sends > 1,
        )
        self.admission.ended(verdict)
        if verdict.final:
            return (yield from self._rejected(error, verdict))
        if verdict.certainty is Certainty.ACTED and verdict.basis is Basis.WITNESSED:
            return (yield from self._done(error, verdict.why))
        then = yield from self.patience.after(
            error, verdict, repeatable=self._repeatable, probe=self.plan.has_probe
        )
        if verdict.certainty in SURE:
            return (yield from self._had_no_effect(error, verdict, then))
        return (yield from self._ambiguous(error, verdict, then))

    def _done(self, error: BaseException, why: str) -> Flow[Ending]:
        """It happened, but its result was lost. The probe may have it; nothing is sent again."""
        found, _ = yield from self._probed(error)
        if found is not None:
            return found
        outcome = excuse(f"{why} ({describe_error(type(error).__name__, printable(error))})")
        reply = yield from self._write_down(Complete(self.key, self.token, self.epoch, outcome))
        if isinstance(reply, Refused):
            return (yield from self._too_late(outcome, None))
        return Done(error, why, recorded=isinstance(reply, Applied))

    def _outside(self, error: BaseException, verdict: Verdict) -> Flow[Ending | None]:
        """The tool never used its transaction: a rollback does not cover the answer it lost."""
        self.admission.release()
        denial = yield from self._dispatch()
        return (
            (yield from self._ambiguous(error, verdict, NEVER))
            if denial is None
            else Lost(error, verdict.why)
        )

    def _had_no_effect(
        self, error: BaseException, verdict: Verdict, then: RetryDecision
    ) -> Flow[Ending | None]:
        reply = yield from self._take_back(0.0 if then.delay_s is None else self.plan.lease_s)
        # If it is unknown whether this was written, another send could be taken back by it: stop
        # here.
        delay_s = then.delay_s if isinstance(reply, Applied) else None
        yield from self._leave(
            reply, self.patience.attempt, error, verdict, then.why if delay_s is None else None
        )
        if delay_s is not None and (yield from self._pause(delay_s)):
            return None
        attempts, after_s = self.patience.attempt, verdict.retry_after_s
        if self.sends > 0 or isinstance(reply, Refused):
            # An earlier attempt, or the owner of the record now, may have done it.
            return Exhausted(error, attempts, after_s, then.why)
        return NothingSent(
            error, attempts, exhausted=then.worthwhile, retry_after_s=after_s, why=then.why
        )

    def _rejected(self, error: BaseException, verdict: Verdict) -> Flow[Ending]:
        facts = in_the_outcome(failed_attempt(self.patience.attempt, error, verdict))
        reply = yield from self._write_down(
            Fail(self.key, self.token, self.epoch, encode_error(error, facts))
        )
        match reply:
            case Applied():
                return Rejection(error)
            case Unavailable():
                return self._unrecorded(error)
            case Refused():
                reason = f"refused ({printable(error)}), but an earlier send may have landed"
                before = "an earlier send may have landed"
                return (yield from self._doubt(error, verdict, reason, before))

    def _ambiguous(
        self, error: BaseException, verdict: Verdict, then: RetryDecision
    ) -> Flow[Ending | None]:
        if self._repeatable:
            self.unanswered = error
            if then.delay_s is None:
                return (yield from self._gave_up(error, verdict, then.why))
            yield from self._leave(None, self.patience.attempt, error, verdict, None)
            if (yield from self._pause(then.delay_s)):
                return None
            return Exhausted(error, self.patience.attempt, verdict.retry_after_s, then.why)
        unaided = (OUTSIDE if self.in_transaction else KEY_UNREAD) if self.unaided else ""
        reason = (
            f"{verdict.why} ({describe_error(type(error).__name__, printable(error))}){unaided}"
        )
        return (yield from self._doubt(error, verdict, reason, then.why))

    def _gave_up(self, error: BaseException, verdict: Verdict, why: str) -> Flow[Ending]:
        """Sends nothing again. The probe may know; else the next call goes on under the key."""
        number = self.patience.attempt
        ending, answer = yield from self._probed(error)
        reply = (yield from self._let_go_sent()) if ending is None else None
        yield from self._leave(reply, number, error, verdict, why)
        if ending is not None:
            return ending
        if (interrupted := interruption(answer)) is not None:
            return Exhausted(interrupted, number)
        return Exhausted(error, number, verdict.retry_after_s, why_given_up(why, answer))

    def _doubt(self, error: BaseException, verdict: Verdict, reason: str, why: str) -> Flow[Ending]:
        op = Doubt(self.key, self.token, self.epoch, reason, self.unaided)
        reply = yield from self._write_down(op)
        yield from self._leave(reply, self.patience.attempt, error, verdict, why)
        if self.plan.has_probe and isinstance(error, Exception) and isinstance(reply, Applied):
            ending = self._doubt_over((yield from self._reconcile(Doubtful(0.0, reason))), 0.0)
            # the probe found nothing, and the turn lets nothing run instead
            if isinstance(ending, OutOfPatience):
                return NothingSent(error, self.patience.attempt, exhausted=True, why=ending.why)
            if not isinstance(ending, Doubtful | Unavailable | Again):
                return ending
        return Lost(error, reason)

    # ------------------------------------------------------------ reconcile

    def reconcile(self) -> Flow[Ending]:
        """Settle an effect that is in doubt by its probe, without ever sending it again."""
        ending = yield from self._reconcile(Doubtful(0.0, ""), may_rerun=False)
        return (
            Doubtful(0.0, "its record changed meanwhile")
            if isinstance(ending, Again | Fenced)
            else ending
        )

    def _reconcile(self, doubtful: Doubtful, *, may_rerun: bool = True) -> Flow[Ending | Again]:
        self.token = self.env.new_token()
        reply = yield from insist(Inquire(self.key, self.token, self.plan.lease_s), self.env)
        match reply:
            case Held(epoch):
                self.epoch, self.sends = epoch, 0
            case Busy():
                return doubtful  # another caller is asking already
            case Refused(state):
                return doubtful if state is None else Again()
            case _:
                return reply  # type: ignore[no-any-return]  # Unavailable
        answer = yield from Ask(self.key, self.token, self.epoch)
        rerun: WriteReply | None = None
        match answer:
            case Ok(Found(result)):
                return (yield from self._complete(result, by=PROBE))
            case Ok(NotFound()) if may_rerun and not self.patience.used_up():
                rerun = yield from insist(
                    Rerun(self.key, self.token, self.epoch, self.plan.lease_s), self.env
                )
        if isinstance(rerun, Applied):
            self.probes_first = False  # it was asked just now
            return (yield from self._own(dispatched=False))
        yield from insist(Renew(self.key, self.token, self.epoch, 0), self.env)
        if (interrupted := interruption(answer)) is not None:
            return Lost(interrupted, "the probe was interrupted")
        return Doubtful(doubtful.since_s, f"{doubtful.reason}; {why_unsettled(answer)}")
