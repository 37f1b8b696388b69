"""What a file tries again: decorators of retry libraries, their loops, and hand-written loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from effectonce.lint import _known as known
from effectonce.lint._source import (
    Function,
    Module,
    argument,
    callee,
    calls,
    keyword,
    names,
    own,
)

_EVERYTHING = ["builtins.Exception"]
_LIBRARIES = frozenset(known.RETRY_DECORATORS.values())
_PLAIN_WAITS = known.words(
    "tenacity.wait_fixed tenacity.wait_exponential tenacity.wait_incrementing tenacity.wait_chain"
    " tenacity.wait_combine"
)
_ENDS = {
    "tenacity": ("stop",),
    "backoff": ("max_tries", "max_time"),
    "retrying": ("stop_max_attempt_number", "stop_max_delay", "stop_func", "stop"),
    "retry": ("tries",),
}


@dataclass(frozen=True, slots=True)
class Retries:
    """A retry library at work: `@retry`, `@retry(...)`, or `Retrying(...)`."""

    node: ast.expr
    origin: str
    library: str

    @property
    def call(self) -> ast.Call | None:
        return self.node if isinstance(self.node, ast.Call) else None


def retries(module: Module, node: ast.AST) -> Retries | None:
    """Is this expression one?"""
    origin = module.origin(callee(node))
    library = known.RETRY_DECORATORS.get(origin)
    if library is None or not isinstance(node, ast.expr):
        return None
    return Retries(node, origin, library)


def all_retries(module: Module) -> Iterator[tuple[Retries, Function | None]]:
    """Every one of a file, and the function that it decorates."""
    if not any(name.partition(".")[0] in _LIBRARIES for name in module.modules):
        return
    decorators: dict[ast.AST, Function] = {}
    for function in module.functions:
        decorators |= dict.fromkeys(function.decorator_list, function)
    bare = (each for each in decorators if not isinstance(each, ast.Call))
    for node in (*module.every(ast.Call), *bare):
        found = retries(module, node)
        if found is not None:
            yield found, decorators.get(found.node)


def is_open(call: ast.Call) -> bool:
    """Does it take arguments that are not written here?"""
    return any(each.arg is None for each in call.keywords) or any(
        isinstance(arg, ast.Starred) for arg in call.args
    )


# ---------------------------------------------------------------- which errors


def errors(module: Module, found: Retries) -> list[str]:
    """The errors that it tries again after, by name; none if it does not say."""
    call = found.call
    if call is None:
        return _EVERYTHING
    if is_open(call):
        return []
    match found.library:
        case "tenacity":
            given = module.value(keyword(call, "retry"))
            return _EVERYTHING if given is None else _of_tenacity(module, given)
        case "backoff" if found.origin == "backoff.on_exception":
            return _named(module, argument(call, 1, "exception"))
        case "stamina":
            return _named(module, keyword(call, "on"))
        case "retrying":
            chooses = _has(call, "retry_on_exception", "retry_on_result")
            return [] if chooses else _EVERYTHING
        case "retry":
            given = argument(call, 0, "exceptions")
            return _EVERYTHING if given is None else _named(module, given)
        case _:
            return []


def _has(call: ast.Call, *names: str) -> bool:
    return any(keyword(call, name) is not None for name in names)


def _of_tenacity(module: Module, given: ast.AST) -> list[str]:
    called = module.origin(given.func) if isinstance(given, ast.Call) else ""
    match given:
        case ast.Call(args=args) if called == "tenacity.retry_if_exception_type":
            return _named(module, args[0]) if args else _EVERYTHING
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return [*_of_tenacity(module, left), *_of_tenacity(module, right)]
        case ast.Call(args=args) if called == "tenacity.retry_any":
            return [name for each in args for name in _of_tenacity(module, each)]
        case _:
            return []


def _named(module: Module, given: ast.AST | None) -> list[str]:
    value = module.value(given)
    if isinstance(value, ast.Tuple | ast.List):
        return [name for each in value.elts if (name := module.origin(each))]
    return [name] if (name := module.origin(given)) else []


def polls(module: Module, found: Retries) -> bool:
    """Does it wait for a result rather than repeat after an error?"""
    asked = any("result" in name for name in _retry_names(module, found))
    return asked or found.origin == "backoff.on_predicate"


def is_safe(module: Module, found: Retries) -> bool:
    """Does it ask our tables whether another attempt is safe?"""
    return any(name.endswith("tenacity.retry_if_safe") for name in _retry_names(module, found))


def _retry_names(module: Module, found: Retries) -> list[str]:
    """What `retry=` calls."""
    given = None if found.call is None else keyword(found.call, "retry")
    return [] if given is None else [module.origin(call.func) for call in calls(given)]


# ---------------------------------------------------------------- how often, and how long apart


def is_endless(module: Module, found: Retries) -> bool:
    """Does it never give up?"""
    call = found.call
    if found.library == "stamina":
        limits = ("attempts", "timeout")
        return call is not None and all(_is_none(keyword(call, name)) for name in limits)
    if call is None:
        return True
    by_place = {"tenacity": 0, "retry": 1}.get(found.library, len(call.args))
    if is_open(call) or len(call.args) > by_place:
        return False
    given = [keyword(call, name) for name in _ENDS[found.library]]
    ends = [each for each in given if each is not None and not _is_none(each)]
    return not ends or all(module.origin(each) == "tenacity.stop_never" for each in ends)


def waits_alike(module: Module, found: Retries) -> str:
    """How it waits, if all that failed together return together; "" if not, or it is not said."""
    call = found.call
    if call is None or is_open(call) or polls(module, found):
        return ""
    match found.library:
        case "tenacity":
            return _tenacity_wait(module, keyword(call, "wait"))
        case "backoff":
            return "jitter=None" if _is_none(keyword(call, "jitter")) else ""
        case "stamina":
            jitter = keyword(call, "wait_jitter")
            return "wait_jitter=0" if isinstance(jitter, ast.Constant) and jitter.value == 0 else ""
        case "retrying":
            waits = [n for n in ("wait_fixed", "wait_exponential_multiplier") if _has(call, n)]
            return "" if _has(call, "wait_jitter_max") or not waits else waits[0]
        case "retry":
            grows = _has(call, "backoff") and argument(call, 5, "jitter") is None
            return "backoff without jitter" if grows else ""
        case _:
            return ""


def _tenacity_wait(module: Module, given: ast.expr | None) -> str:
    value = module.value(given)
    waits = [] if value is None else [module.origin(call.func) for call in calls(value)]
    alike = bool(waits) and _PLAIN_WAITS.issuperset(waits)
    return waits[-1].removeprefix("tenacity.") if alike else ""


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# ---------------------------------------------------------------- loops


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that does the same thing again after an error, and is left when that went well."""

    node: ast.For | ast.While
    attempt: ast.Try | ast.TryStar
    handlers: list[ast.ExceptHandler]  # after which it goes on


def repeating(module: Module) -> list[ast.For | ast.While]:
    """The loops that may be attempts."""
    counted = (n for n in module.every(ast.For) if module.origin(n.iter) == "builtins.range()")
    return [*module.every(ast.While), *counted]


def loops(module: Module) -> Iterator[Loop]:
    """Retries that are written by hand."""
    for node in repeating(module):
        for place, statement in enumerate(node.body):
            if not isinstance(statement, ast.Try | ast.TryStar):
                continue
            blocks = (statement.body, statement.orelse, node.body[place + 1 :])
            left = any(isinstance(each, ast.Return | ast.Break) for b in blocks for each in own(b))
            going_on = [handler for handler in statement.handlers if not _leaves(handler)]
            if left and going_on and not _counts_items(node, statement):
                yield Loop(node, statement, going_on)


def _leaves(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Return | ast.Break | ast.Raise)


def _counts_items(node: ast.For | ast.While, attempt: ast.Try | ast.TryStar) -> bool:
    """Is the number used in what is tried? Then each round is about something else."""
    if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
        return False
    looked_up = (each for each in own(attempt.body) if isinstance(each, ast.Subscript))
    return any(node.target.id in names(each.slice) for each in looked_up)


def slept(module: Module, loop: Loop) -> Iterator[ast.Call]:
    """Where it waits."""
    return (call for call in calls(loop.node.body) if module.origin(call.func) in known.SLEEP)
