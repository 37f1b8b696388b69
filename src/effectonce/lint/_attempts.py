"""What a file tries again: decorators of retry libraries, their loops, and hand-written loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from effectonce.lint import _known as known
from effectonce.lint._source import Function, Module, calls, keyword, own

_EVERYTHING = ["builtins.Exception"]
_LIBRARIES = frozenset(known.RETRY_DECORATORS.values())
_PLAIN_WAITS = frozenset(
    f"tenacity.{w}"
    for w in ("wait_fixed", "wait_exponential", "wait_incrementing", "wait_chain", "wait_combine")
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
    func = node.func if isinstance(node, ast.Call) else node
    origin = module.origin(func)
    library = known.RETRY_DECORATORS.get(origin)
    return (
        Retries(node, origin, library)
        if library is not None and isinstance(node, ast.expr)
        else None
    )


def all_retries(module: Module) -> Iterator[tuple[Retries, Function | None]]:
    """Every one of a file, and the function that it decorates."""
    if not any(name.partition(".")[0] in _LIBRARIES for name in module.modules):
        return
    decorators: dict[ast.AST, Function] = {}
    for function in module.functions:
        decorators |= dict.fromkeys(function.decorator_list, function)
    for node in (
        *module.every(ast.Call),
        *(each for each in decorators if not isinstance(each, ast.Call)),
    ):
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
            given = keyword(call, "retry")
            return (
                _EVERYTHING if given is None else _of_tenacity(module, module.value(given) or given)
            )
        case "backoff" if found.origin == "backoff.on_exception":
            return _named(
                module, call.args[1] if len(call.args) > 1 else keyword(call, "exception")
            )
        case "stamina":
            return _named(module, keyword(call, "on"))
        case "retrying":
            chooses = any(
                keyword(call, name) is not None
                for name in ("retry_on_exception", "retry_on_result")
            )
            return [] if chooses else _EVERYTHING
        case "retry":
            given = call.args[0] if call.args else keyword(call, "exceptions")
            return _EVERYTHING if given is None else _named(module, given)
        case _:
            return []


def _of_tenacity(module: Module, given: ast.AST) -> list[str]:
    match given:
        case ast.Call(func=func, args=args) if (
            module.origin(func) == "tenacity.retry_if_exception_type"
        ):
            return _named(module, args[0]) if args else _EVERYTHING
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return [*_of_tenacity(module, left), *_of_tenacity(module, right)]
        case ast.Call(func=func, args=args) if module.origin(func) == "tenacity.retry_any":
            return [name for each in args for name in _of_tenacity(module, each)]
        case _:
            return []


def _named(module: Module, given: ast.AST | None) -> list[str]:
    value = module.value(given) if given is not None else None
    if isinstance(value, ast.Tuple | ast.List):
        return [name for each in value.elts if (name := module.origin(each))]
    return [name] if (name := module.origin(given)) else []


def polls(module: Module, found: Retries) -> bool:
    """Does it wait for a result rather than repeat after an error?"""
    given = keyword(found.call, "retry") if found.call is not None else None
    asked = given is not None and any("result" in module.origin(call.func) for call in calls(given))
    return asked or found.origin == "backoff.on_predicate"


def is_safe(module: Module, found: Retries) -> bool:
    """Does it ask our tables whether another attempt is safe?"""
    given = keyword(found.call, "retry") if found.call is not None else None
    return given is not None and any(
        module.origin(call.func).endswith("tenacity.retry_if_safe") for call in calls(given)
    )


# ---------------------------------------------------------------- how often, and how long apart


def is_endless(module: Module, found: Retries) -> bool:
    """Does it never give up?"""
    call = found.call
    if found.library == "stamina":
        return call is not None and all(
            _is_none(keyword(call, name)) for name in ("attempts", "timeout")
        )
    if call is None:
        return True
    if (
        is_open(call)
        or (found.library == "tenacity" and call.args)
        or (found.library == "retry" and len(call.args) > 1)
    ):
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
            names = [
                name
                for name in ("wait_fixed", "wait_exponential_multiplier")
                if keyword(call, name) is not None
            ]
            return "" if keyword(call, "wait_jitter_max") is not None or not names else names[0]
        case "retry":
            grows = (
                keyword(call, "backoff") is not None
                and keyword(call, "jitter") is None
                and len(call.args) < 6
            )
            return "backoff without jitter" if grows else ""
        case _:
            return ""


def _tenacity_wait(module: Module, given: ast.expr | None) -> str:
    value = module.value(given) if given is not None else None
    if value is None:
        return ""
    names = [module.origin(call.func) for call in calls(value)]
    return (
        names[-1].removeprefix("tenacity.")
        if names and all(name in _PLAIN_WAITS for name in names)
        else ""
    )


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# ---------------------------------------------------------------- loops


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that does the same thing again after an error, and is left when that went well."""

    node: ast.For | ast.While | ast.AsyncFor
    attempt: ast.Try | ast.TryStar
    handlers: list[ast.ExceptHandler]  # after which it goes on


def loops(module: Module) -> Iterator[Loop]:
    """Retries that are written by hand."""
    for node in module.every(ast.While):
        yield from _loop(node)
    for counted in module.every(ast.For):
        if module.origin(counted.iter) == "builtins.range()":
            yield from _loop(counted)


def _loop(node: ast.For | ast.While) -> Iterator[Loop]:
    for statement in node.body:
        if not isinstance(statement, ast.Try | ast.TryStar):
            continue
        after = node.body[node.body.index(statement) + 1 :]
        left = any(_leaves(block) for block in (statement.body, statement.orelse, after))
        going_on = [
            handler for handler in statement.handlers if not _leaves(handler.body, anywhere=False)
        ]
        if left and going_on and not _counts_items(node, statement):
            yield Loop(node, statement, going_on)


def _leaves(block: list[ast.stmt], *, anywhere: bool = True) -> bool:
    """Does it leave the loop: somewhere, or at its end?"""
    ends = (ast.Return, ast.Break) if anywhere else (ast.Return, ast.Break, ast.Raise)
    if not anywhere:
        return bool(block) and isinstance(block[-1], ends)
    return any(isinstance(node, ends) for node in own(block))


def _counts_items(node: ast.For | ast.While, attempt: ast.Try | ast.TryStar) -> bool:
    """Is the number used in what is tried? Then each round is about something else."""
    if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
        return False
    used = [
        n
        for n in own(attempt.body)
        if isinstance(n, ast.Subscript)
        and any(_is_name(m, node.target.id) for m in ast.walk(n.slice))
    ]
    return bool(used)


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def slept(module: Module, loop: Loop) -> Iterator[ast.Call]:
    """Where it waits."""
    return (call for call in calls(loop.node.body) if module.origin(call.func) in known.SLEEP)
