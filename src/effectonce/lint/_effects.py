"""Effects: is each one recorded for what it is, and does anything record it at all?"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from effectonce.lint import _known as known
from effectonce.lint._finding import Hit, LintRules
from effectonce.lint._reading import DeclaredTool, EffectCall, Reading
from effectonce.lint._source import Function, Module, called, calls, caught, loads, own

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
    advice = "Guard it with @guard.tool(kind=...)"
    if tool.adapter:
        advice += f", or protect its agent with effectonce.integrations.{tool.adapter}"
    return f"{advice}."


def _uses(module: Module, tool: DeclaredTool) -> bool:
    return bool(tool.adapter) and any(
        name.startswith("effectonce.integrations") for name in module.modules
    )


# ---------------------------------------------------------------- doubts reported as successes


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
    if tool.sort == "guarded":
        acts = does_something(reading, node.body)
    else:
        acts = any(reading.effects(node.body))
    for handler in node.handlers if acts else []:
        what = _doubtful(reading.module, handler)
        parts = list(own(handler.body))
        ends = _any(parts, ast.Return) or _goes_on_to_return(reading.module, node)
        if what and ends and not _any(parts, ast.Raise) and not _leaves(reading, parts):
            yield Hit(handler, _doubt(what, reading.name_of(tool.function)), given=tool.adapter)


def _any(parts: list[ast.AST], kind: type[ast.AST]) -> bool:
    return any(isinstance(part, kind) for part in parts)


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
            returns = bool(after) and isinstance(after[0], ast.Return)
            return returns and isinstance(above, Function)
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
            errors = [each for arg in call.args for each in getattr(arg, "elts", [arg])]
            return _doubt_among(reading.module, errors)
    return ""


def _doubtful(module: Module, handler: ast.ExceptHandler) -> str:
    """What it catches, if the effect is unknown after it; "" if it catches less."""
    return "every error" if handler.type is None else _doubt_among(module, caught(handler))


def _doubt_among(module: Module, errors: list[ast.expr]) -> str:
    for origin in map(module.origin, errors):
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
        if is_verb(called(call)) and package not in known.SENDS | sys.stdlib_module_names:
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
        methods = [call.func.attr for call in calls(body) if isinstance(call.func, ast.Attribute)]
        joined = not {"join", "result", "wait"}.isdisjoint(methods)
        for call in calls(body):
            how = starts(module, call)
            if not how or BESIDE.search(ast.unparse(call)) or (how == "a thread" and joined):
                continue
            above = module.parents.get(call)
            targets = above.targets if isinstance(above, ast.Assign) else []
            kept = any(isinstance(t, ast.Name) and loads(body, t.id) for t in targets)
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
    if origin in _TASKS or (not origin and getattr(call.func, "attr", "") == "run_in_executor"):
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
        effect = next(reading.effects(tool.function.body), None)
        if effect is not None:
            yield Hit(
                effect.call,
                f'{tool.function.name} is declared kind="read" and {effect.what}: nothing is'
                ' recorded, and every repeat does it again. Declare what it is: kind="write", or'
                ' "irreversible".',
            )


Effects = tuple[EffectCall, ...]


class _Path(NamedTuple):
    """What may happen on the way through some statements."""

    ended: Effects  # the most, on a way that leaves the function
    on: Effects | None  # the most, on a way that goes on; None if none does


def _several(reading: Reading) -> Iterator[Hit]:
    for tool in reading.recorded:
        if tool.kind in ("read", "idempotent_write"):
            continue
        path = _through(reading, tool.function.body)
        most = max(path.ended, path.on or (), key=len)
        if len(most) > 1 and not all(effect.keyed for effect in most):
            first, second = most[:2]
            message = _EACH_ITEM if first is second else _SECOND
            name = reading.name_of(tool.function)
            yield Hit(second.call, message.format(name), given=tool.adapter)


_EACH_ITEM = (
    "{} does this for each item and is recorded as one effect: after a crash in between it is"
    " unknown which were done. Call a tool for each item."
)
_SECOND = (
    "this is the second effect of {}, which is recorded as one: after a crash between them it is"
    " unknown which was done. Make them two tools, or two steps of a workflow."
)


def _through(reading: Reading, statements: list[ast.stmt]) -> _Path:
    ended: Effects = ()
    so_far: Effects = ()
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
            first = tuple(reading.effects(subject))
            return _either(first, _NOTHING, *(_through(reading, case.body) for case in cases))
        case ast.Try() | ast.TryStar():
            whole = _through(reading, [*statement.body, *statement.orelse])
            instead = [_through(reading, handler.body) for handler in statement.handlers]
            last = tuple(effect for each in statement.finalbody for effect in reading.effects(each))
            taken = _either((), whole, *instead)
            return _Path(taken.ended + last, None if taken.on is None else taken.on + last)
        case ast.With() | ast.AsyncWith():
            first = tuple(effect for item in statement.items for effect in reading.effects(item))
            return _either(first, _through(reading, statement.body))
        case ast.For() | ast.AsyncFor() | ast.While():
            return _Path((), _looped(reading, statement))
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return _NOTHING
        case ast.Return() | ast.Raise():
            return _Path(tuple(reading.effects(statement)), None)
        case _:
            return _Path((), tuple(reading.effects(statement)))


_NOTHING = _Path((), ())


def _either(first: Effects, *ways: _Path) -> _Path:
    ended = max((way.ended for way in ways), key=len)
    ons = [way.on for way in ways if way.on is not None]
    on = first + max(ons, key=len) if ons else None
    return _Path(first + ended if ended or not ons else (), on)


def _looped(reading: Reading, loop: ast.For | ast.AsyncFor | ast.While) -> Effects:
    """One for each item is several; a loop that is left after the first is an attempt."""
    inside = tuple(reading.effects(loop.body))
    left = any(isinstance(node, ast.Break | ast.Return) for node in own(loop.body))
    if left or isinstance(loop, ast.While):
        return inside[:1]
    counted = reading.module.origin(loop.iter) == "builtins.range()"
    return inside[:1] if counted else (inside * 2)[: max(2, len(inside))]


# ---------------------------------------------------------------- workflows, and own records


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


_REDIS = re.compile(r"redis\.|django\.core\.cache\.cache\.")
_LOOKS, _WRITES = ("get", "exists", "sismember", "hget"), ("set", "setex", "sadd", "hset", "psetex")


def _looked_up_then_done(reading: Reading) -> Iterator[Hit]:
    if not any(name.startswith(("redis", "django.core.cache")) for name in reading.module.modules):
        return
    for function in reading.module.functions:
        effects = [effect for effect in reading.effects(function.body) if not effect.keyed]
        lines = [effect.call.lineno for effect in effects]
        for look, write in _pairs(reading.module, function) if lines else ():
            if any(look.lineno < line < write.lineno for line in lines):
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
        and _REDIS.match(module.origin(call.func))
    ]
    looks = [call for call in of_redis if called(call) in _LOOKS]
    writes = [call for call in of_redis if called(call) in _WRITES]
    for look, write in product(looks, writes):
        claims = any(each.arg in ("nx", "xx") for each in write.keywords)
        same = ast.dump(look.args[0]) == ast.dump(write.args[0])
        if same and not claims and look.lineno < write.lineno:
            yield look, write


RULES: LintRules = {
    "EO201": _unprotected,
    "EO202": _swallowed,
    "EO203": _not_waited_for,
    "EO204": _read_that_writes,
    "EO205": _several,
    "EO206": _beside_the_steps,
    "EO207": _looked_up_then_done,
}
