/* One key of the protocol, written a second time, in Promela: an independent model for Spin.
 *
 * explore.py runs the shipped table and the shipped flow. This file shares nothing with them but the numbers of the rules, so that a
 * mistake in the explorer itself does not go unnoticed, and it proves more about liveness: under weak fairness every call settles.
 *
 *   -DCAP      1 none, 2 probe and a person, 3 key, 4 transaction, 5 probe and re-run under a delay bound
 *   -DREFUSALS the downstream stores its refusals (key only)
 *   -DAPART    claim and dispatch are two writes
 *   -DNW workers, and how often: -DCRASHES a worker dies, -DHASTE a lease ends although its owner lives, -DTIMEOUTS an answer does not
 *   come, -DMISSES a request cannot be sent
 *   -DLIVE     the property that every call settles;  -DNOLEASE without lease ends it must fail
 *
 * The record has no epoch here: tokens are never used twice, and store writes are neither lost nor repeated (explore.py has both).
 */
#ifndef CAP
#define CAP 1
#endif
#ifndef NW
#define NW 2
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef HASTE
#define HASTE 1
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 2
#endif
#ifndef MISSES
#define MISSES 1
#endif
#ifndef REFUSALS
#define REFUSALS 0
#endif
#define TOKENS 20

#define KEY      (CAP == 3)
#define MINE     (tok == my)
#define LATE_ONLY_SEND (st == IN_DOUBT && dtok == my && sends == 1)
#define FINAL    (sends == 1 || REFUSALS)            /* a refusal is a failure only if it answers the only send there was */
#define QUIET    (flying == 0 && sending == 0)       /* no send can land any more: what a delay bound promises */

mtype = { ABSENT, CLAIMED, DISPATCHED, COMPLETED, FAILED, IN_DOUBT };

/* the record */
mtype st = ABSENT;
byte tok = 0, dtok = 0, res = 0, sends = 0;
bool live = false;                                   /* its lease */
bool calm = false;                                   /* at the last inquiry nothing could land any more */

/* the world */
byte next_token = 1;
bool dead[TOKENS];                                   /* ghost: the owner of this token is gone */
byte effects = 0, remembered = 0;                    /* what the downstream did, and what it keeps under our key */
bool refused = false;
byte flying = 0;                                     /* requests on their way, with nobody waiting */
byte sending = 0;                                    /* workers that may send, or wait for an answer */
byte crashes = CRASHES, haste = HASTE, timeouts = TIMEOUTS, misses = MISSES;

/* what callers were told */
bool told_ok = false, told_failed = false, told_doubt = false;
byte told_result = 0;

inline tell_ok(r) {
  assert(told_result == 0 || told_result == r); assert(!told_failed); assert(st == COMPLETED && res == r);
  told_result = r; told_ok = true
}
inline tell_failed() { assert(!told_ok); assert(effects == 0); told_failed = true }

/* One request reaches the downstream. answer = 0: refused, else the number of the result. */
inline deliver(answer) {
  if
  :: KEY && remembered -> answer = remembered
  :: !(KEY && remembered) ->
     if
     :: !(REFUSALS && refused) ->
        effects++; assert(effects <= 1); assert(!told_failed); answer = effects;
        if :: KEY -> remembered = effects :: else fi
     :: effects == 0 -> refused = true; answer = 0
     fi
  fi
}

/* T1, T2, T8: the record is ours; by default the same write dispatches. */
inline take() {
  my = next_token; next_token++; tok = my; live = true;
#if CAP != 4 && !defined(APART)
  st = DISPATCHED; sends++; dtok = my; sending++
#else
  st = CLAIMED
#endif
}
#if CAP != 4 && !defined(APART)
#define OWNED send
#else
#define OWNED claimed
#endif

inline settle(how) { st = how; live = false }
inline doubt() { st = IN_DOUBT; tok = 0; live = false }
inline leave() { dead[my] = true; my = 0; r = 0 }

#ifndef NOLEASE
active proctype Clock() {
end: do
  :: atomic { live && dead[tok] -> live = false }
  :: atomic { live && !dead[tok] && haste > 0 -> haste--; live = false }
  od
}
#endif

active proctype Network() {
  byte answer;
end: do
  :: atomic { flying > 0 -> flying--; deliver(answer); answer = 0 }
  :: atomic { flying > 0 -> flying-- }
  od
}

#define DIE atomic { crashes > 0 -> crashes--; leave(); goto idle }

active [NW] proctype Worker() {
  byte my = 0, r = 0;
idle:
end:
  if
  :: atomic { st == COMPLETED -> tell_ok(res); goto done }
  :: atomic { st == FAILED -> tell_failed(); goto done }
  :: atomic { st == ABSENT -> take(); goto OWNED }                                            /* T1 */
  :: atomic { st == CLAIMED && !live && (sends == 0 || KEY) -> take(); goto OWNED }           /* T2 */
  :: atomic { st == CLAIMED && !live && sends > 0 && !KEY -> doubt(); goto idle }             /* T7 */
  :: atomic { st == DISPATCHED && !live && KEY -> take(); goto OWNED }                        /* T8 */
  :: atomic { st == DISPATCHED && !live && !KEY -> doubt(); goto idle }                       /* T7 */
#if CAP == 2 || CAP == 5
  :: atomic { st == IN_DOUBT && !live -> my = next_token; next_token++; tok = my; live = true; calm = QUIET; goto ask } /* T9 */
#else
  :: atomic { st == IN_DOUBT -> told_doubt = true; goto done }
#endif
  fi;

claimed:
#if CAP == 4
  if
  :: atomic { st == CLAIMED && MINE ->                                                        /* T5b: effect and outcome, or neither */
       effects++; assert(effects <= 1); res = effects; settle(COMPLETED); tell_ok(res); goto done }
  :: atomic { st == CLAIMED && MINE -> settle(FAILED); tell_failed(); goto done }             /* T6b: rolled back, refused */
  :: atomic { misses > 0 && st == CLAIMED && MINE -> misses--; live = false; leave(); goto idle }
  :: atomic { !(st == CLAIMED && MINE) -> leave(); goto idle }
  :: DIE
  fi;
#else
  if
  :: atomic { st == CLAIMED && MINE -> st = DISPATCHED; dtok = my; sends++; sending++ }       /* T3 */
  :: atomic { !(st == CLAIMED && MINE) -> leave(); goto idle }
  :: DIE
  fi;
#endif

send:
  if
  :: goto wait
  :: atomic { misses > 0 && st == DISPATCHED && MINE ->                                       /* T4: nothing left */
       misses--; sending--; sends--; st = CLAIMED; goto claimed }
  :: atomic { crashes > 0 -> crashes--; sending--; leave(); goto idle }
  fi;

wait:
  if
  :: atomic { deliver(r); sending--; if :: r > 0 -> goto answered :: else -> goto rejected fi }
  :: atomic { timeouts > 0 -> timeouts--; flying++; sending--; goto ambiguous }               /* it is still on its way */
  :: atomic { timeouts > 0 -> timeouts--; sending--; goto ambiguous }                         /* it was lost */
  :: atomic { crashes > 0 -> crashes--; flying++; sending--; leave(); goto idle }
  fi;

answered:
  if
  :: goto complete
  :: atomic { timeouts > 0 -> timeouts--; r = 0; goto ambiguous }                             /* the answer was lost */
  :: DIE
  fi;

complete:
  if
  :: atomic { st == DISPATCHED && MINE -> res = r; settle(COMPLETED); tell_ok(r); goto done } /* T5 */
  :: atomic { LATE_ONLY_SEND -> res = r; settle(COMPLETED); tok = 0; tell_ok(r); goto done }  /* T10b */
  :: atomic { !(st == DISPATCHED && MINE) && !LATE_ONLY_SEND -> leave(); goto idle }          /* too late: kept as evidence only */
  :: DIE
  fi;

rejected:
  if
  :: atomic { st == DISPATCHED && MINE && FINAL -> settle(FAILED); tell_failed(); goto done } /* T6 */
  :: atomic { st == DISPATCHED && MINE && !FINAL -> doubt(); leave(); goto idle }             /* T7 */
  :: atomic { !(st == DISPATCHED && MINE) -> leave(); goto idle }
  :: DIE
  fi;

ambiguous:
#if CAP == 3
  if
  :: atomic { st == DISPATCHED && MINE -> sends++; sending++; goto send }                     /* T3 again: counted before it is sent */
  :: atomic { !(st == DISPATCHED && MINE) -> leave(); goto idle }
  :: atomic { st == DISPATCHED && MINE -> live = false; leave(); goto idle }                  /* gives up; whoever calls next re-sends */
  :: DIE
  fi;
#else
  if
  :: atomic { st == DISPATCHED && MINE -> doubt(); leave(); goto idle }                       /* T7 */
  :: atomic { !(st == DISPATCHED && MINE) -> leave(); goto idle }
  :: DIE
  fi;
#endif

ask:
#if CAP == 2 || CAP == 5
  if
  :: atomic { effects > 0 -> r = 1; goto found }
#if CAP == 2
  :: atomic { effects == 0 -> told_doubt = true; if :: MINE -> live = false :: else fi; leave(); goto done }
#else
  :: atomic { effects == 0 -> goto not_found }
#endif
  :: DIE
  fi;

found:
  if
  :: atomic { st == IN_DOUBT && MINE -> res = r; settle(COMPLETED); tell_ok(r); goto done }   /* T10 */
  :: atomic { !(st == IN_DOUBT && MINE) -> leave(); goto idle }
  :: DIE
  fi;

#if CAP == 5
not_found:
  if
#ifdef HASTY                                          /* X11: judged when the answer is used; a send may have landed since */
  :: atomic { st == IN_DOUBT && MINE && QUIET -> st = CLAIMED; sends = 0; goto claimed }
  :: atomic { st == IN_DOUBT && MINE && !QUIET -> goto ask }
#else
  :: atomic { st == IN_DOUBT && MINE && calm -> st = CLAIMED; sends = 0; goto claimed }       /* T11 */
  :: atomic { st == IN_DOUBT && MINE && !calm -> calm = QUIET; goto ask }                     /* T9 again, later */
#endif
  :: atomic { !(st == IN_DOUBT && MINE) -> leave(); goto idle }
  :: DIE
  fi;
#endif
#endif

done: skip
}

#ifdef LIVE
ltl settled { <> (st == COMPLETED || st == FAILED || told_doubt) }
#endif
