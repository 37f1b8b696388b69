"""What the engines of an app do to the identity of effects, as far as its modules show it.

Only what the app has imported already is looked at: no engine is imported to find out. Whatever
is found here, effects land once; it costs a model that is asked again, a run that cannot be
resumed, or a message that two workers have at the same time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from effectonce import Finding, Guard, Kind
from effectonce._text import span
from effectonce.views.tools import tools_of

# what Celery's transports do by default
VISIBLE_S = {"redis": 3600.0, "rediss": 3600.0, "sentinel": 3600.0, "sqs": 1800.0}


def engines(guard: Guard, module: str) -> tuple[Finding, ...]:
    """What to know about the engines that *module* and its package use."""
    things = list(_things(module.partition(".")[0]))
    return (*_langgraph(things), *_celery(guard, things), *_dbos())


def _things(package: str) -> Iterator[tuple[str, Any]]:
    """Everything that has a name in the package, once."""
    seen: set[int] = set()
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] != package:
            continue
        for called, thing in list(vars(module).items()):
            if id(thing) not in seen:
                seen.add(id(thing))
                yield f"{name}:{called}", thing


def _all_of(things: list[tuple[str, Any]], module: str, cls: str) -> list[tuple[str, Any]]:
    """Those of a class, if it was imported."""
    kind = getattr(sys.modules.get(module), cls, ())
    return [(name, thing) for name, thing in things if isinstance(thing, kind)]


# ---------------------------------------------------------------- LangGraph


def _langgraph(things: list[tuple[str, Any]]) -> Iterator[Finding]:
    graphs = _all_of(things, "langgraph.pregel", "Pregel")
    # they are saved by the graph around them
    inner = {id(graph) for _, outer in graphs for _, graph in outer.get_subgraphs()}
    for name, graph in graphs:
        if id(graph) not in inner:
            yield _saved(f"graph {name}", graph)


def _saved(subject: str, graph: Any) -> Finding:
    saver = graph.checkpointer
    if not saver:
        advice = (
            "compile(checkpointer=...), and invoke it with a thread_id. A graph that is only used"
            " inside another one needs none."
        )
        return Finding(subject, "no checkpointer: a run that crashed cannot be resumed", advice)
    if type(saver).__name__ == "InMemorySaver":
        found = "checkpoints are in the memory of one process"
        return Finding(subject, found, "Take the SQLite or PostgreSQL checkpointer.")
    mode = (graph.config or {}).get("configurable", {}).get("__pregel_durability")
    if mode == "sync":
        return Finding(subject, "each step is saved before the next one begins")
    found = (
        f'durability="{mode or "async"}"{"" if mode else ", unless an invocation says otherwise"}:'
        " a crash may lose the last steps"
    )
    advice = (
        "After one, the model is asked again, and may decide otherwise. graph = durable(graph), of"
        " effectonce.integrations.langchain."
    )
    return Finding(subject, found, advice)


# ---------------------------------------------------------------- Celery


def _celery(guard: Guard, things: list[tuple[str, Any]]) -> Iterator[Finding]:
    apps = _all_of(things, "celery", "Celery")
    for name, app in apps:
        yield from _visible(guard, f"Celery {name}", app)
    tasks = (
        task
        for _, app in apps
        for task in app.tasks.values()
        if getattr(task, "effectonce_guard", None) is guard
    )
    for task in {task.name: task for task in tasks}.values():  # apps share them
        yield from _acknowledged(task)


def _visible(guard: Guard, subject: str, app: Any) -> Iterator[Finding]:
    """After the visibility time-out, a message that one worker has is given to another as well."""
    transport = str(app.conf.broker_url or "").partition("://")[0].partition("+")[0]
    visible_s = (app.conf.broker_transport_options or {}).get(
        "visibility_timeout", VISIBLE_S.get(transport)
    )
    contracts = [
        tool.contract for tool in tools_of(guard).values() if tool.contract.kind is not Kind.READ
    ]
    longest_s, slowest = max(
        ((max(c.lease_s, c.retry.deadline_s), c.name) for c in contracts), default=(0.0, "")
    )
    if visible_s is None or not contracts:
        return
    found = f"a message comes again after {span(visible_s)}"
    if visible_s > longest_s:
        yield Finding(subject, f"{found}; a tool takes {span(longest_s)} at most")
    else:
        advice = (
            "Two workers have it at the same time then. Let visibility_timeout be more than"
            f" {longest_s:g} s."
        )
        yield Finding(subject, f"{found}, but {slowest} may take {span(longest_s)}", advice)


def _acknowledged(task: Any) -> Iterator[Finding]:
    off = [name for name in ("acks_late", "reject_on_worker_lost") if not getattr(task, name)]
    if off:
        found = (
            f"{' and '.join(off)} {'is' if len(off) == 1 else 'are'} off: a worker that is killed"
            " loses the task"
        )
        advice = (
            "Its effect is known, but no worker goes on from there. Leave them as EffectOnce(guard)"
            " has them."
        )
        yield Finding(f"task {task.name}", found, advice)


# ---------------------------------------------------------------- DBOS


def _dbos() -> Iterator[Finding]:
    launched = getattr(sys.modules.get("dbos._dbos"), "_dbos_global_instance", None)
    params = getattr(sys.modules.get("dbos._utils"), "GlobalParams", None)
    if launched is not None and getattr(params, "executor_id", None) == "local":
        found = (
            'executor_id is "local", the default: a process that starts takes over what others are'
            " doing"
        )
        several = "Where several run at the same time"
        advice = f"{several}, give each its own, in the config or in DBOS__VMID."
        yield Finding("DBOS", found, advice)
