"""The conditions of the transition table: what must hold before a rule applies. Pure."""

from __future__ import annotations

from math import inf
from typing import Any

from effectonce._core.guarantees import LEASE_MAX_S, Capability, Kind, Terms
from effectonce._core.ops import Approve, Claim, Complete, Dispatch, Refute, Rerun, Unsend
from effectonce._core.record import ASKED_BY, PROBE, TERMINAL, Record, Scene, State

SET_BACK_S = 30.0  # clocks are put back by so little every day; `resend_s` has a margin for it


def owns(r: Record, op: Any, _: Scene) -> bool:
    return bool(r.token == op.token and r.epoch == op.epoch)


def leased(r: Record, now: float) -> bool:
    """Is the owner believed alive? A lease with more time left than twice what its effect can have
    lasted, or than any lease, is from a clock put back since. One renewed since is not.
    """
    lasts_s = r.lease_until - r.created_at
    left_s = 2 * min(lasts_s, LEASE_MAX_S) + SET_BACK_S if lasts_s >= 0 else 2 * LEASE_MAX_S
    return r.token != "" and now < r.lease_until <= now + left_s


def lease_over(r: Record, _op: Any, scene: Scene) -> bool:
    return not leased(r, scene.now)


def same_request(r: Record, op: Claim, _: Scene) -> bool:
    return r.request.fingerprint == op.request.fingerprint


def unlatched(_r: Record | None, _op: Claim, scene: Scene) -> bool:
    return scene.rival is None


def in_turn(_r: Record | None, op: Claim, scene: Scene) -> bool:
    return op.request.after == "" or (
        scene.predecessor is not None and scene.predecessor.state in TERMINAL
    )


def to_dispatch(_r: Record | None, op: Claim, _: Scene) -> bool:
    return op.dispatch and not op.request.terms.approval  # that is a write of its own


def to_hold(_r: Record | None, op: Claim, _: Scene) -> bool:
    return not op.dispatch


def approved(r: Record, op: Claim, scene: Scene) -> bool:
    """Has a person let it be sent? What was sent was approved, whatever the time is now."""
    return not op.request.terms.approval or r.sends > 0 or not unapproved(r, op, scene)


def unapproved(r: Record, _op: Any, scene: Scene) -> bool:
    # Only an approval gives a record without an outcome an end. One from the future: the clock
    # was put back, and how long ago it was given is not known.
    given, now = r.dedup_until != inf, scene.now
    return not (given and r.decided_at - SET_BACK_S <= now < r.dedup_until)


def waits(r: Record, scene: Scene) -> bool:
    """Does it wait for a person?"""
    wish = r.state is State.CLAIMED and r.request.terms.approval and r.sends == 0
    return wish and unapproved(r, None, scene)


def another_wish(r: Record, op: Claim, scene: Scene) -> bool:
    """Are its arguments other than those that wait for a person, or were approved and not used?
    Or does it need an approval by now, and did not when it was asked for?
    """
    needed = r.request.terms.approval
    if same_request(r, op, scene):
        return r.sends == 0 and op.request.terms.approval and not needed
    return r.sends == 0 and needed


def wished(r: Record, op: Approve, _: Scene) -> bool:
    """Does it wait for a person, with the very arguments that this one has seen?"""
    seen = r.request.fingerprint == op.fingerprint
    return r.request.terms.approval and r.sends == 0 and seen


def by_another(r: Record, op: Approve, _: Scene) -> bool:
    """Who asked does not approve it, where four eyes are declared. Who is unknown did not ask."""
    return not r.request.terms.four_eyes or _spelt(op.by) != _spelt(asker_of(r))


def _spelt(name: str) -> str:
    return name.strip().casefold()


def asker_of(r: Record) -> str:
    """Who asked for an approval. Before the first one, that is all there is a reason for."""
    asked = (e.outcome.decode() for e in r.evidence if e.note == ASKED_BY)
    return next(asked, "" if r.settled_by else r.reason)


def resendable(r: Record, op: Any, scene: Scene) -> bool:
    # What was sent is judged by the terms under which it was sent. A caller's own terms may be
    # stricter, never looser.
    pinned = r.request.terms
    resend_s = pinned.resend_s
    if isinstance(op, Claim) and op.request.terms is not pinned:
        resend_s = (
            min(resend_s, op.request.terms.resend_s)
            if recognisable(pinned, op.request.terms)
            else 0.0
        )
    if r.sends == 0 or resend_s == inf:
        return True
    return resend_s > 0 and -SET_BACK_S <= _age_s(r.first_dispatch_at, scene) < resend_s


def _age_s(at: float, scene: Scene) -> float:
    """How long ago that was, at most. What was sent before the clock was put back is older than it
    looks. What is of another boot, and lies in the future, stays there: its age is not known.
    """
    age_s = scene.now - at
    if at > scene.sent_before or (age_s < -SET_BACK_S and at <= scene.of_another_boot):
        return age_s
    return age_s + scene.put_back_s


def timed(r: Record | None, op: Any) -> bool:
    """May a rule ask how long ago this was sent? Then the clock is looked at when it is sent, and
    when it is judged.
    """
    return (type(op) is Claim and _limits_time(op.request.terms)) or (
        r is not None and _limits_time(r.request.terms)
    )


def _limits_time(terms: Terms) -> bool:
    return terms.delay_s is not None or 0 < terms.resend_s < inf


def recognisable(sent: Terms, asked: Terms) -> bool:
    """Does the downstream know a repeat under the terms of today for what was sent under those
    of then?

    A key helps only if the first request carried it, too, which is not looked at where a repeat
    does no harm. It has to be the same key at the same provider. A transaction does not undo what
    was sent outside of it.
    """
    harmless = sent.kind is asked.kind is Kind.IDEMPOTENT_WRITE
    if sent.downstream is not asked.downstream:
        return harmless and asked.downstream is not Capability.TRANSACTION
    if sent.downstream is not Capability.KEY or harmless:
        return True
    same_key = (sent.provider, sent.key_shape) == (asked.provider, asked.key_shape)
    return same_key and sent.kind is not Kind.IDEMPOTENT_WRITE


def not_resendable(r: Record, op: Any, scene: Scene) -> bool:
    return not resendable(r, op, scene)


def sent_before(r: Record, _op: Any, _: Scene) -> bool:
    return r.sends > 0


def of_a_send(_r: Record, op: Refute, _: Scene) -> bool:
    return op.wish == ""


def as_seen(r: Record, op: Refute, _: Scene) -> bool:
    return op.wish in ("", r.request.fingerprint)


def never_sent(r: Record, _op: Any, _: Scene) -> bool:
    return r.sends == 0 and not r.request.terms.steps  # what a run did, its steps have sent


def next_send(r: Record, op: Dispatch, _: Scene) -> bool:
    return op.send == r.sends + 1


def this_send(r: Record, op: Unsend, _: Scene) -> bool:
    return op.send == r.sends


def rejection_is_final(r: Record, _op: Any, _: Scene) -> bool:
    return r.sends == 1 or r.request.terms.stores_rejections


def ends_unsent(r: Record, _op: Any, _: Scene) -> bool:
    """Its effect is written by the COMMIT of its end, or by its steps: nothing is ever sent."""
    return r.request.terms.downstream is Capability.TRANSACTION or r.request.terms.steps


def done_unsent(r: Record, op: Complete, scene: Scene) -> bool:
    """The same; or a probe, asked before the first send, has found that it had happened."""
    return ends_unsent(r, op, scene) or (op.by == PROBE and r.sends == 0)


def late_only_send(r: Record, op: Complete, _: Scene) -> bool:
    return r.dtoken == op.token and r.sends == 1


def quiet(r: Record, _op: Any, scene: Scene) -> bool:
    terms = r.request.terms
    if terms.kind is Kind.IRREVERSIBLE or terms.delay_s is None:
        return False
    return scene.now > _last_send_ends(r, scene) + terms.delay_s


def _last_send_ends(r: Record, scene: Scene) -> float:
    """When the last sender's lease ends, by the clock as it is now. After a step, it may have begun
    just before.
    """
    leases_s = min(r.sent_until - r.first_dispatch_at, LEASE_MAX_S)
    if r.first_dispatch_at < scene.steady_since:
        return max(r.sent_until, scene.steady_since + leases_s)
    if scene.put_back_s > 0 and r.first_dispatch_at > scene.now:
        # the lease was renewed until the doubt at the latest, which may be older than the step
        doubted_at = r.decided_at if r.decided_at <= scene.now else scene.steady_since
        return max(doubted_at, scene.steady_since) + leases_s
    return r.sent_until


def asked_when_quiet(r: Record, _op: Rerun, _: Scene) -> bool:
    return r.sent_until == 0.0


def window_over(r: Record, _op: Any, scene: Scene) -> bool:
    return r.dedup_until <= scene.now


def may_rerun(r: Record, op: Claim, scene: Scene) -> bool:
    return op.request.terms.rerun and window_over(r, op, scene)


def remembered(r: Record, _op: Any, _: Scene) -> bool:
    return r.request.terms.tombstone_s > 0


def unremembered(r: Record, _op: Any, scene: Scene) -> bool:
    return r.dedup_until + r.request.terms.tombstone_s <= scene.now
