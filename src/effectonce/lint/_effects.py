"""Effects: is each one recorded for what it is, and does anything record it at all?"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from effectonce.lint import _known as known
from effectonce.lint._finding import Hit, LintRule
from effectonce.lint._reading import DeclaredTool, EffectCall, Reading
from effectonce.lint._source import Function, Module, calls, own

BESIDE = re.compile(r"log|metric|trac|telemetr|audit|stat|monitor|heartbeat|cache", re.IGNORECASE)
_EXECUTORS = re.compile(
    r"concurrent\.futures\.(?:\w+\.)?(?:Thread|Process)PoolExecutor\(\)\.submit"
)
_TASKS = frozenset({"asyncio.create_task", "asyncio.ensure_future"})
_BACKGROUND = re.compile(r"(?:fastapi|starlette\.background)\.BackgroundTasks\(\)\.add_task")


def _unprotected(reading: Reading) -> Iterator[Hit]:
    for tool in reading.tools.values():
        if tool.sort not in ("agent", "engine") or _uses(reading.module, tool):
            continue
        for call in calls(tool.function.body):
            effect = reading.effect(call) or by_helper(reading, call)
            if effect is not None and not effect.keyed and not effect.repeatable:
                yield Hit(
                    call,
                    f"{reading.name_of(tool.function)} is a {tool.name} that {effect.what}, and"
                    f" nothing keeps a retry from doing it again. {_advice(tool)}",
                    unless=tool.adapter,
                )
                break


def by_helper(reading: Reading, call: ast.Call) -> EffectCall | None:
    """What a called function of this file does, but requests: what they are for, callers know."""
    helper = reading.module.definition(call.func)
    if helper is None or helper in reading.tools:
        return None
    return next((effect for effect in reading.effects(helper.body) if not effect.http), None)


def _advice(tool: DeclaredTool) -> str:
    elsewhere = (
        f", or protect its agent with effectonce.integrations.{tool.adapter}"
        if tool.adapter
        else ""
    )
    return f"Guard it with @guard.tool(kind=...){elsewhere}."


def _uses(module: Module, tool: DeclaredTool) -> bool:
    return bool(tool.adapter) and any(
        name.startswith("effectonce.integrations") for name in module.modules
    )


# ---------------------------------------------------------------- a doubt that is reported as a
# success


def _swallowed(reading: Reading) -> Iterator[Hit]:
    for tool in reading.recorded:
        if tool.kind == "read":
            continue
        for node in own(tool.function.body):
            if isinstance(node, ast.Try | ast.TryStar):
                yield from _handlers(reading, node, tool)
            elif isinstance(node, ast.With) and (what := _suppresses(reading, node)):
                yield Hit(
                    node.items[0].context_expr,
                    _doubt(what, reading.name_of(tool.function)),
                    given=tool.adapter,
                )


def _handlers(reading: Reading, node: ast.Try | ast.TryStar, tool: DeclaredTool) -> Iterator[Hit]:
    acts = (
        does_something(reading, node.body)
        if tool.sort == "guarded"
        else any(reading.effects(node.body))
    )
    for handler in node.handlers if acts else []:
        what = _doubtful(reading.module, handler.type)
        parts = list(own(handler.body))
        ends = any(isinstance(part, ast.Return) for part in parts) or _goes_on_to_return(
            reading.module, node
        )
        if (
            what
            and ends
            and not any(isinstance(part, ast.Raise) for part in parts)
            and not _leaves(reading, parts)
        ):
            yield Hit(handler, _doubt(what, reading.name_of(tool.function)), given=tool.adapter)


def _doubt(what: str, name: str) -> str:
    return (
        f"{what} is caught here and {name} returns as if all were well: that is recorded as its"
        " success, whether it happened or not. Let the error out; effectonce records what it means"
        " and tells the model."
    )


def _goes_on_to_return(module: Module, node: ast.AST) -> bool:
    """Does a function return something after this statement, in the block where it stands?"""
    above = module.parents.get(node)
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(above, block, None)
        if isinstance(statements, list) and node in statements:
            after = statements[statements.index(node) + 1 :]
            return (
                bool(after)
                and isinstance(after[0], ast.Return)
                and isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef)
            )
    return False


def _leaves(reading: Reading, parts: list[ast.AST]) -> bool:
    """Does it end the process, or call a function that never returns?"""
    exits = ("sys.exit", "os._exit", "os.abort", "builtins.exit", "builtins.quit")
    return any(
        isinstance(part, ast.Call) and reading.module.origin(part.func) in exits for part in parts
    )


def _suppresses(reading: Reading, node: ast.With) -> str:
    for item in node.items:
        call = item.context_expr
        if (
            isinstance(call, ast.Call)
            and reading.module.origin(call.func) == "contextlib.suppress"
            and any(reading.effects(node.body))
        ):
            return next(
                (what for each in call.args if (what := _doubtful(reading.module, each))), ""
            )
    return ""


def _doubtful(module: Module, caught: ast.expr | None) -> str:
    """What a handler catches, if the effect is unknown after it; "" if it catches less."""
    if caught is None:
        return "every error"
    for each in caught.elts if isinstance(caught, ast.Tuple) else [caught]:
        origin = module.origin(each)
        if origin in known.EVERYTHING:
            return "every error"
        if known.LOST_ANSWER.fullmatch(origin):
            return f"a lost answer ({origin.removeprefix('builtins.')})"
    return ""


def does_something(reading: Reading, body: list[ast.stmt]) -> bool:
    """Has it an effect, as far as calls are known or named so? Reading an answer is none."""
    for call in calls(body):
        if reading.effect(call) is not None:
            return True
        package = reading.module.origin(call.func).partition(".")[0]
        name = (
            call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        )
        if is_verb(name) and package not in known.SENDS and package not in sys.stdlib_module_names:
            return True
        helper = reading.module.definition(call.func)
        if helper is not None and any(reading.effects(helper.body)):
            return True
    return False


def is_verb(name: str) -> bool:
    """Is a function called by what it does out there?"""
    return name.strip("_").partition("_")[0] in _DOES


_DOES = known.words(
    "pay charge refund transfer send create post execute submit publish book order cancel commit"
    " issue purchase"
)


# ---------------------------------------------------------------- started, and not waited for


def _not_waited_for(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    for tool in reading.guarded:
        body = tool.function.body
        waited = {
            node.id
            for node in own(body)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        }
        joined = any(
            isinstance(c.func, ast.Attribute) and c.func.attr in ("join", "result", "wait")
            for c in calls(body)
        )
        for call in calls(body):
            how = starts(module, call)
            if not how or BESIDE.search(ast.unparse(call)) or (how == "a thread" and joined):
                continue
            above = module.parents.get(call)
            kept = isinstance(above, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id in waited for t in above.targets
            )
            if isinstance(above, ast.Expr | ast.Assign) and not kept:
                yield Hit(
                    call,
                    f"{tool.function.name} leaves this to {how} and is recorded as done before it"
                    " happened: if it fails, or the process ends, it is not done again. Wait for"
                    " it inside the tool.",
                )


def starts(module: Module, call: ast.Call) -> str:
    """What a call leaves its work to; "" if it does it."""
    origin = module.origin(call.func)
    if origin in _TASKS or (
        not origin and isinstance(call.func, ast.Attribute) and call.func.attr == "run_in_executor"
    ):
        return "a task"
    if origin in ("threading.Thread().start", "multiprocessing.Process().start"):
        return "a thread"
    if _EXECUTORS.fullmatch(origin):
        made = module.value(call.func.value) if isinstance(call.func, ast.Attribute) else None
        return "an executor" if isinstance(made, ast.Call) else ""  # one of a `with` is waited for
    return "background tasks" if _BACKGROUND.fullmatch(origin) else ""


# ---------------------------------------------------------------- kinds, and how many


def _read_that_writes(reading: Reading) -> Iterator[Hit]:
    for tool in reading.guarded:
        if tool.kind != "read":
            continue
        for effect in reading.effects(tool.function.body):
            yield Hit(
                effect.call,
                f'{tool.function.name} is declared kind="read" and {effect.what}: nothing is'
                ' recorded, and every repeat does it again. Declare what it is: kind="write", or'
                ' "irreversible".',
            )
            break


class _Path(NamedTuple):
    """What may happen on the way through some statements."""

    ended: tuple[EffectCall, ...]  # the most, on a way that leaves the function
    on: tuple[EffectCall, ...] | None  # the most, on a way that goes on; None if none does


def _several(reading: Reading) -> Iterator[Hit]:
    for tool in reading.recorded:
        if tool.kind in ("read", "idempotent_write"):
            continue
        path = _through(reading, tool.function.body)
        most = max(path.ended, path.on or (), key=len)
        if len(most) > 1 and not all(effect.keyed for effect in most):
            first, second = most[:2]
            yield Hit(
                second.call,
                _one_record(reading.name_of(tool.function), looped=first is second),
                given=tool.adapter,
            )


def _one_record(name: str, *, looped: bool) -> str:
    if looped:
        return (
            f"{name} does this for each item and is recorded as one effect: after a crash in"
            " between it is unknown which were done. Call a tool for each item."
        )
    return (
        f"this is the second effect of {name}, which is recorded as one: after a crash between them"
        " it is unknown which was done. Make them two tools, or two steps of a workflow."
    )


def _through(reading: Reading, statements: list[ast.stmt]) -> _Path:
    ended: tuple[EffectCall, ...] = ()
    so_far: tuple[EffectCall, ...] = ()
    for statement in statements:
        path = _step(reading, statement)
        ended = max(ended, so_far + path.ended if path.ended or path.on is None else (), key=len)
        if path.on is None:
            return _Path(ended, None)
        so_far += path.on
    return _Path(ended, so_far)


def _step(reading: Reading, statement: ast.stmt) -> _Path:
    match statement:
        case ast.If(test=test, body=body, orelse=orelse):
            first = tuple(reading.effects(test))
            return _either(first, _through(reading, body), _through(reading, orelse))
        case ast.Match(subject=subject, cases=cases):
            return _either(
                tuple(reading.effects(subject)),
                *(_through(reading, case.body) for case in cases),
                _Path((), ()),
            )
        case ast.Try() | ast.TryStar():
            whole = _through(reading, [*statement.body, *statement.orelse])
            instead = [_through(reading, handler.body) for handler in statement.handlers]
            last = tuple(effect for each in statement.finalbody for effect in reading.effects(each))
            taken = _either((), whole, *instead)
            return _Path(taken.ended + last, None if taken.on is None else taken.on + last)
        case ast.With() | ast.AsyncWith():
            first = tuple(effect for item in statement.items for effect in reading.effects(item))
            inner = _through(reading, statement.body)
            return _Path(
                first + inner.ended if inner.ended or inner.on is None else (),
                None if inner.on is None else first + inner.on,
            )
        case ast.For() | ast.AsyncFor() | ast.While():
            return _Path((), _looped(reading, statement))
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return _Path((), ())
        case ast.Return() | ast.Raise():
            return _Path(tuple(reading.effects(statement)), None)
        case _:
            return _Path((), tuple(reading.effects(statement)))


def _either(first: tuple[EffectCall, ...], *ways: _Path) -> _Path:
    ended = max((way.ended for way in ways), key=len, default=())
    ons = [way.on for way in ways if way.on is not None]
    return _Path(
        first + ended if ended or not ons else (), first + max(ons, key=len) if ons else None
    )


def _looped(reading: Reading, loop: ast.For | ast.AsyncFor | ast.While) -> tuple[EffectCall, ...]:
    """One for each item is several; a loop that is left after the first is an attempt."""
    inside = tuple(reading.effects(loop.body))
    left = any(isinstance(node, ast.Break | ast.Return) for node in own(loop.body))
    items = (
        isinstance(loop, ast.For | ast.AsyncFor)
        and not left
        and reading.module.origin(loop.iter) != "builtins.range()"
    )
    return (inside * 2)[: max(2, len(inside))] if items else inside[:1]


# ---------------------------------------------------------------- workflows, and records made by
# hand


def _beside_the_steps(reading: Reading) -> Iterator[Hit]:
    for tool in reading.tools.values():
        if tool.sort != "workflow":
            continue
        for effect in reading.effects(tool.function.body):
            yield Hit(
                effect.call,
                f"{tool.function.name} does this beside its steps, and each time that the run is"
                " resumed it is done again. Make it a step: run.step(name, function, ...).",
            )


_LOOKS, _WRITES = ("get", "exists", "sismember", "hget"), ("set", "setex", "sadd", "hset", "psetex")


def _looked_up_then_done(reading: Reading) -> Iterator[Hit]:
    if not any(name.startswith(("redis", "django.core.cache")) for name in reading.module.modules):
        return
    for function in reading.module.functions:
        effects = [effect for effect in reading.effects(function.body) if not effect.keyed]
        if not effects:
            continue
        for look, write in _pairs(reading.module, function):
            between = [
                effect for effect in effects if look.lineno < effect.call.lineno < write.lineno
            ]
            if between:
                yield Hit(
                    look,
                    f"{function.name} looks whether it was done, does it, and then writes that"
                    " down: two at once both do it, and so does a restart after a crash in"
                    " between. Claim it first, in one step: @guard.tool does.",
                )
                break


def _pairs(module: Module, function: Function) -> Iterator[tuple[ast.Call, ast.Call]]:
    """A look into Redis and a later write of the same key."""
    of_redis = [
        call
        for call in calls(function.body)
        if isinstance(call.func, ast.Attribute)
        and call.args
        and re.match(r"redis\.|django\.core\.cache\.cache\.", module.origin(call.func))
    ]
    for look in of_redis:
        for write in of_redis:
            assert isinstance(look.func, ast.Attribute)
            assert isinstance(write.func, ast.Attribute)
            same = ast.dump(look.args[0]) == ast.dump(write.args[0])
            claims = any(each.arg in ("nx", "xx") for each in write.keywords)
            if (
                same
                and look.func.attr in _LOOKS
                and write.func.attr in _WRITES
                and not claims
                and look.lineno < write.lineno
            ):
                yield look, write


RULES = (
    LintRule("EO201", _unprotected),
    LintRule("EO202", _swallowed),
    LintRule("EO203", _not_waited_for),
    LintRule("EO204", _read_that_writes),
    LintRule("EO205", _several),
    LintRule("EO206", _beside_the_steps),
    LintRule("EO207", _looked_up_then_done),
)
