/* Recipes that people copy, each with a few callers of ONE logical action. Every one of them lets the effect happen twice.
 *
 *   -DSEED=0  look in a cache, run, store the result
 *   -DSEED=1  the same, where a stored {} or 0 or "" counts as nothing
 *   -DSEED=2  the attempt's number is part of the key; the downstream dedups perfectly by key
 *   -DSEED=3  a lock with a time-out: wait, proceed anyway, and release it whoever holds it
 *   -DSEED=4  look up, then reserve; a reservation that is too old counts as failed
 *   -DSEED=5  look for "complete" only
 *   -DSEED=6  a workflow file that says "running" is run again after a restart
 */
#ifndef SEED
#define SEED 0
#endif

byte effects = 0, crashes = 1;
bool stored = false;                                  /* a result is there */

inline effect() { effects++; assert(effects <= 1) }
inline maybe_die() { if :: crashes > 0 -> crashes--; goto again :: skip fi }

#if SEED == 0 || SEED == 1
active [2] proctype Caller() {
again:
  if
  :: stored && SEED == 0 -> goto done
  :: !stored || SEED == 1 -> skip
  fi;
  effect();
  maybe_die();
  stored = true;
done: skip
}
#endif

#if SEED == 2
byte keys_seen = 0;
active proctype Caller() {
  byte attempt = 1;
  do
  :: attempt <= 2 ->
     if
     :: keys_seen & (1 << attempt) -> skip
     :: else -> keys_seen = keys_seen | (1 << attempt); effect()
     fi;
     if :: break :: attempt++ fi                      /* the answer arrives, or is lost */
  :: attempt > 2 -> break
  od
}
#endif

#if SEED == 3
bool locked = false;
active [3] proctype Caller() {
  bool mine = false;
  if :: stored -> goto done :: else fi;
  atomic { if :: !locked -> locked = true; mine = true :: else fi };
  if :: !mine && stored -> goto done :: else fi;      /* "proceed anyway" */
  if :: stored -> goto release :: else fi;
  effect();
  stored = true;
release: locked = false;
done: skip
}
active proctype LockTimeout() { end: do :: locked -> locked = false od }
#endif

#if SEED == 4 || SEED == 5
bool reserved = false, too_old = false;
active [2] proctype Caller() {
again:
  if
  :: stored -> goto done
#if SEED == 4
  :: !stored && reserved && !too_old -> goto done
  :: !stored && !(reserved && !too_old) -> skip
#else
  :: !stored -> skip
#endif
  fi;
  reserved = true; too_old = false;                   /* not a conditional insert */
  effect();
  maybe_die();
  stored = true;
done: skip
}
active proctype Age() { end: do :: reserved && !too_old && !stored -> too_old = true od }
#endif

#if SEED == 6
active proctype Caller() {
again:
  if :: stored -> goto done :: else fi;               /* "running" is not "completed" */
  effect();
  maybe_die();
  stored = true;
done: skip
}
#endif
