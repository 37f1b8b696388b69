"""Celery: whatever is retried or delivered again, a task's guarded tools have one effect.

    app = Celery("shop", broker="redis://localhost", task_cls=EffectOnce(guard))

Theory of operation. A task is a step of its message: the same message has the same effect,
however often it is delivered. A message is known by its task id, which a retry and a redelivery
keep. If you send it again by hand, keep it too, `task_id=...`, or name it in a header,
`headers={"effectonce": {"scope": ...}}`. A task that is sent by a task has its place in that
task for a scope: if the sender is run again, it sends the same one again, whatever id Celery
gives it. The tasks of a group, a chain or a chord have ids that Celery makes up before it sends
them: those count as none, and what comes after a task, the rest of a chain, the body of a chord
or what is linked to its end or its failure, is named with it.
"""

from __future__ import annotations

import copy
import functools
import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from effectonce import ContractViolation, EffectOnceError, Guard, Stable
from effectonce._core.backoff import full_jitter
from effectonce._random import rng
from effectonce._runtime.step import flagged, here
from effectonce.integrations._occurrence import Occurrences, asked_for

try:
    from celery import Task, current_task  # type: ignore[import-untyped]
except ImportError as missing:
    raise ImportError(
        "effectonce.integrations.celery needs celery: pip install 'effectonce[celery]'"
    ) from missing

HEADER = "effectonce"
COUNTED = "counted"  # its scope is a place, which requests that differ share: there is no latch
LINKS = ("link", "link_error")  # what is sent after a task that succeeded, or failed
BASE_S, CAP_S = 1.0, 300.0  # between two tries of a task, where no delay is given
MADE_UP = 4  # the version of the UUIDs that Celery makes
_inside: ContextVar[tuple[str, Occurrences] | None] = ContextVar("effectonce_celery", default=None)


def EffectOnce(guard: Guard, *, base: type[Task] = Task) -> type[Task]:
    """A class for all tasks of an app, or for one: `Celery(task_cls=EffectOnce(guard))`,
    `@app.task(base=EffectOnce(guard))`.

    Its tasks are acknowledged when they have ended, and delivered again if their process dies.
    What may go better is retried, as often as the task's `max_retries` says; what is in doubt,
    or failed for good, is not.
    """

    class _ProtectedTask(base):  # type: ignore[misc]
        abstract = True
        acks_late = True
        reject_on_worker_lost = True
        effectonce_guard = guard  # `effectonce doctor` looks for it

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            given = _given(self.request.headers)
            scope, sender = given.get("scope") or self.request.id, _inside.get()
            # called as a function, perhaps by itself
            if scope is None or (sender is not None and sender[0] == scope):
                return super().__call__(*args, **kwargs)
            token = _inside.set((scope, Occurrences()))
            try:
                where, latch = _kept(scope, given), not given.get(COUNTED)
                with guard.step(where, Stable(self.name), tenant=_whose(given), latch=latch):
                    return super().__call__(*args, **kwargs)
            except EffectOnceError as error:
                if not error.retriable:
                    raise
                delay_s = _delay_s(error, self.request.retries)
                raise self.retry(exc=error, countdown=delay_s) from error
            finally:
                _inside.reset(token)

        def apply_async(
            self,
            args: Any = None,
            kwargs: Any = None,
            task_id: str | None = None,
            *rest: Any,
            **options: Any,
        ) -> Any:
            with _addressed(self.name, task_id, args, kwargs, options):
                return super().apply_async(args, kwargs, task_id, *rest, **options)

        @classmethod
        def on_bound(cls, app: Any) -> None:
            super().on_bound(app)
            _address_what_is_sent_by_name(app)

    return _ProtectedTask


def _address_what_is_sent_by_name(app: Any) -> None:
    """`app.send_task(...)`, and a signature of another app's task, go past every task of this."""
    bare = app.send_task
    if getattr(bare, "__effectonce__", False):
        return

    @functools.wraps(bare)
    def send_task(
        name: str, args: Any = None, kwargs: Any = None, *rest: Any, **options: Any
    ) -> Any:
        # a task has its identity already; rest: everything by its position
        if options.get("task_type") is not None or rest:
            return bare(name, args, kwargs, *rest, **options)
        with _addressed(name, options.get("task_id"), args, kwargs, options):
            return bare(name, args, kwargs, **options)

    send_task.__effectonce__ = True  # type: ignore[attr-defined]
    vars(app)["send_task"] = send_task


def _addressed(
    task: str, task_id: str | None, args: Any, kwargs: Any, options: dict[str, Any]
) -> _Sending:
    """Say in the headers of *options* who it is, and in those of what follows it."""
    headers, sending = options.pop("headers", None) or {}, _Sending()
    named = _named(task, task_id, args or (), kwargs or {}, sending, frozen="reply_to" in options)
    if _inside.get() is not None and not _is_own(task_id):
        # it may follow another as well
        options |= {part: copy.deepcopy(options[part]) for part in LINKS if part in options}
        _name_what_follows([options.get(part) for part in ("chain", "chord", *LINKS)], sending)
    if named and HEADER not in headers:
        headers = {**headers, HEADER: named}
    if headers:
        options["headers"] = headers
    return sending


def _given(headers: Any) -> Mapping[str, Any]:
    given = (headers or {}).get(HEADER) or {}
    if isinstance(given, Mapping):
        return given
    raise ContractViolation(
        f"the header {HEADER!r} is {given!r}: give headers={{{HEADER!r}: {{'scope': ...}}}}."
        " Nothing was sent."
    )


def _kept(scope: str, given: Mapping[str, Any]) -> Stable:
    """A task's id and place are the same on each delivery. What was given by hand should be."""
    by_hand = given.get("scope") and not given.get(COUNTED)
    return Stable(flagged(scope, "the scope in the header") if by_hand else scope)


def _whose(given: Mapping[str, Any]) -> Stable | None:
    return None if given.get("tenant") is None else Stable(flagged(given["tenant"], "tenant"))


class _Sending:
    """`with`: places of what is sent; the same if it is sent again: the broker may have it."""

    def __init__(self) -> None:
        self.places: list[tuple[Occurrences, str, bytes, int]] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            for places, task, asked, place in self.places:
                places.give_back(task, asked, place)


def _named(
    task: str,
    task_id: str | None,
    args: Any,
    kwargs: Mapping[str, Any],
    sending: _Sending,
    *,
    frozen: bool,
) -> dict[str, Any]:
    """Who the new task is, if its id does not say it. *frozen*: Celery may have given it the id."""
    sender, boundary = _inside.get(), here.get()
    named: dict[str, Any] = {} if boundary is None else {"tenant": boundary.tenant}
    if sender is not None and (task_id is None or (frozen and _is_made_up(task_id))):
        (scope, places), asked = sender, asked_for(args, kwargs)
        place = places.take(task, asked)
        sending.places.append((places, task, asked, place))
        named |= {"scope": f"{scope}/{task}#{place}", COUNTED: True}
    return named


def _is_made_up(task_id: str) -> bool:
    try:
        return uuid.UUID(task_id).version == MADE_UP and not _is_own(task_id)
    except ValueError:
        return False


def _is_own(task_id: str | None) -> bool:
    """Is it the retried task's own? Then its message already says who follows it."""
    return bool(current_task) and task_id == current_task.request.id


def _name_what_follows(after: Any, sending: _Sending) -> None:
    """Celery sends it when the sender has ended: so its message gets its identity now."""
    if isinstance(after, list | tuple):
        for each in after:
            _name_what_follows(each, sending)
    elif isinstance(after, Mapping):
        given, options = after["kwargs"] or {}, after["options"]
        headers = options.get("headers") or {}
        _name_what_follows([options.get(part) for part in LINKS], sending)
        parts = [given[part] for part in ("tasks", "header", "body") if part in given]
        if parts and after.get("subtask_type"):  # of a group or a chain, and of a chord
            _name_what_follows(parts, sending)
        elif HEADER not in headers:
            # the body of a chord is with each task of its header, and is named once
            task_id, args = options.get("task_id"), after["args"] or ()
            named = _named(after["task"], task_id, args, given, sending, frozen=True)
            options["headers"] = {**headers, HEADER: named}


def _delay_s(error: EffectOnceError, retries: int) -> float:
    if error.retry_after_s is not None:
        return error.retry_after_s
    return full_jitter(retries + 1, BASE_S, CAP_S, rng)
