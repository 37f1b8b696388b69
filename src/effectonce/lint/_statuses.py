"""Statuses: does a retry look at what an answer says, or does it go on until that is a success?

A test of an answer is asked what it says of some statuses. One that says the same of all that
are no success tells none apart. If a loop, a decorator or a predicate has only such tests, it
tries again after any status. Where an answer, or an error, is given to a function that may look
at it, nothing is reported.
"""

from __future__ import annotations

import ast
import operator
import re
import sys
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

from effectonce.lint import _known as known
from effectonce.lint._attempts import Retries, all_retries, errors, is_open, loops, repeating
from effectonce.lint._finding import Hit, LintRules
from effectonce.lint._reading import EffectCall, Reading
from effectonce.lint._retries import (
    TELLS,
    allowed_methods,
    body_of_loop,
    broad,
    caught_by,
    risked,
)
from effectonce.lint._source import (
    Module,
    argument,
    calls,
    caught,
    children,
    constants,
    given,
    keyword,
    names,
    own,
    parameters,
)

_GOOD, _BAD = (200, 201, 202, 204), (400, 401, 403, 404, 409, 422, 429, 500, 502, 503, 504)
_FINAL = (400, 401, 403, 404, 405, 410, 413, 415, 422)
_ERRORS = re.compile(
    r"(?:requests|niquests)\.(?:exceptions\.)?HTTPError|httpx2?\.HTTPStatusError|aiohttp\.(?:client_exceptions\.)?ClientResponseError"
)
_OF_ANSWER: dict[str, Callable[[int], object]] = {
    "status_code": lambda status: status,
    "status": lambda status: status,
    "ok": lambda status: status < 400,
    "is_success": lambda status: status < 300,
    "is_error": lambda status: status >= 400,
    "is_client_error": lambda status: 400 <= status < 500,
    "is_server_error": lambda status: status >= 500,
}
_OPERATORS: dict[type[ast.AST], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
    ast.FloorDiv: operator.floordiv,
}


# ---------------------------------------------------------------- what a test says of a status


class _UnknownError(Exception):
    """A test has something in it that is not a status."""


def _value(module: Module, node: ast.AST, answer: str, status: int) -> Any:
    """What an expression is, if the answer of that name has this status."""

    def of(part: ast.AST) -> Any:
        return _value(module, part, answer, status)

    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Attribute(value=ast.Name(id=name), attr=attr) if (
            name == answer and attr in _OF_ANSWER
        ):
            return _OF_ANSWER[attr](status)
        case ast.Attribute(value=ast.Name() | ast.Attribute(), attr=attr) if (
            attr.upper() in HTTPStatus.__members__
        ):
            return HTTPStatus[attr.upper()].value
        case ast.Name() if (meant := module.value(node)) is not None and meant is not node:
            return of(meant)
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return [of(item) for item in items]
        case ast.Call(args=given) if (
            module.origin(node.func) == "builtins.range" and 1 <= len(given) <= 2
        ):
            return range(*(of(each) for each in given))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not of(operand)
        case ast.BoolOp(op=op, values=values):
            return (all if isinstance(op, ast.And) else any)([of(each) for each in values])
        case ast.BinOp(op=ast.FloorDiv(), left=left, right=right):
            return of(left) // of(right)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [of(each) for each in (left, *comparators)]
            return all(
                _OPERATORS[type(op)](*pair)
                for op, *pair in zip(ops, sides, sides[1:], strict=False)
            )
        case _:
            raise _UnknownError


def _says(module: Module, test: ast.AST, answer: str) -> str:
    """Where a test holds: "good", "bad", "some" (it may tell bad ones apart), "" (it does not)."""
    try:
        good = {bool(_value(module, test, answer, status)) for status in _GOOD}
        bad = {bool(_value(module, test, answer, status)) for status in _BAD}
    except (_UnknownError, TypeError, KeyError, ZeroDivisionError, RecursionError):
        return "some" if _has_name(test, {answer}) else ""
    if len(bad) == 2:
        return "some"
    if True in bad:
        return "bad" if False in good else ""
    return "good" if True in good else ""


def _has_name(node: ast.AST, wanted: set[str]) -> bool:
    return not wanted.isdisjoint(names(node))


def _assigned(node: ast.Assign) -> set[str]:
    return {target.id for target in node.targets if isinstance(target, ast.Name)}


def _tells_apart(module: Module, nodes: list[ast.stmt], answer: str) -> bool:
    """May something in there treat one bad answer, or error, in another way than the next?"""
    about = {answer}
    inside = list(own(nodes))
    for node in inside:
        if isinstance(node, ast.Assign) and _has_name(node.value, about):
            about |= _assigned(node)
    for node in inside:
        match node:
            case ast.If(test=test) | ast.IfExp(test=test) if _has_name(test, about):
                if _says(module, test, answer) == "some" or not _has_name(test, {answer}):
                    return True
            case ast.Match(subject=subject) if _has_name(subject, about):
                return True
            case ast.Call() if any(_has_name(each, about) for each in given(node)):
                if not _is_only_shown(module, node):
                    return True
            case _:
                pass
    return False


def _is_only_shown(module: Module, call: ast.Call) -> bool:
    """Is it only logged, printed, read by the standard library, raised or returned?"""
    above = module.parents.get(call)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    package = module.origin(call.func).partition(".")[0]
    return name in TELLS or isinstance(above, ast.Raise | ast.Return) or package in _STANDARD


_STANDARD = frozenset({"builtins"}) | sys.stdlib_module_names


# ---------------------------------------------------------------- loops

_LEAVES = (ast.Return, ast.Break)


def _by_hand(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    guarded = {tool.function for tool in reading.guarded}
    reported: set[ast.AST] = set()  # by EO301 or EO302, for the same attempt
    for loop in loops(module):
        broadly = any(caught_by(module, handler) for handler in loop.handlers)
        if broadly or module.function_around(loop.node) in guarded:
            reported.add(loop.node)
            continue
        effect = _risked(reading, loop.attempt.body)
        handlers = [handler for handler in loop.handlers if _is_status_error(module, handler)]
        if effect is None or not handlers or not _is_the_same(loop.node, effect.call):
            continue
        looked_at = [(loop.attempt.body, _name_of_answer(module, effect.call))]
        looked_at += [(handler.body, handler.name or "") for handler in handlers]
        if not any(_tells_apart(module, body, name) for body, name in looked_at):
            reported.add(loop.node)
            yield Hit(loop.node, _message("this loop", effect))
    for node in repeating(module):
        effect = None if node in reported else _risked(reading, node.body)
        if effect is None or not _is_the_same(node, effect.call):
            continue
        if _is_until_success(module, node, effect.call):
            yield Hit(node, _message("this loop", effect))


def _risked(reading: Reading, nodes: list[ast.stmt]) -> EffectCall | None:
    effect = risked(reading, nodes)
    return effect if effect is not None and effect.http else None


def _is_status_error(module: Module, handler: ast.ExceptHandler) -> bool:
    return any(_ERRORS.fullmatch(module.origin(each)) for each in caught(handler))


def _name_of_answer(module: Module, call: ast.Call) -> str:
    above = module.parents.get(call)
    if isinstance(above, ast.Await):
        above = module.parents.get(above)
    match above:
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.NamedExpr(target=target) | ast.withitem(optional_vars=target):
            return target.id if isinstance(target, ast.Name) else ""
        case _:
            return ""


def _is_the_same(loop: ast.For | ast.While, call: ast.Call) -> bool:
    """Does each round send the same? Results of calls, counters, the round's number may differ."""
    changed: set[str] = set() if isinstance(loop, ast.While) else names(loop.target)
    for node in own(loop.body):
        if isinstance(node, ast.AugAssign):
            changed |= names(node.target)
        elif isinstance(node, ast.Assign):
            differs = any(calls(node.value)) or _has_name(node.value, changed)
            changed |= _assigned(node) if differs else set()
    return not any(_has_name(each, changed) for each in given(call))


def _is_until_success(module: Module, loop: ast.For | ast.While, call: ast.Call) -> bool:
    """Is it left after a success, and goes on after anything else?"""
    answer = _name_of_answer(module, call)
    after = [statement for statement in _flat(loop.body) if statement.lineno > call.lineno]
    raises = any(_raises_itself(node, answer) for node in own(loop.body))
    if not answer or raises or _ends(after, ast.Raise):
        return False
    tests = _parts(loop.test) if isinstance(loop, ast.While) else []
    if any(_says(module, part, answer) == "bad" for part in tests):
        return not _ends(after, *_LEAVES) and not _tells_apart(module, loop.body, answer)
    for number, statement in enumerate(after):
        if not isinstance(statement, ast.If):
            continue
        success, failure = statement.body, statement.orelse
        says = _says(module, statement.test, answer)
        if says == "bad":
            success, failure = failure, success
        if says in ("good", "bad"):
            goes_on = _goes_on(success, failure, after[number + 1 :])
            return goes_on and not _tells_apart(module, _without(loop.body, success), answer)
    return False


def _goes_on(success: list[ast.stmt], failure: list[ast.stmt], rest: list[ast.stmt]) -> bool:
    """Is a loop left only after a success? *rest* comes after both, unless one of them ends."""
    if _ends(failure[-1:], *_LEAVES, ast.Raise):
        return False
    if _ends(failure[-1:], ast.Continue):
        return _ends([*success[-1:], *rest], *_LEAVES)
    return _ends(success[-1:], *_LEAVES) and not _ends(rest, *_LEAVES)


def _parts(test: ast.expr) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) else [test]


def _without(body: list[ast.stmt], success: list[ast.stmt]) -> list[ast.stmt]:
    """The statements of a loop, without those for a success: what is done then does not matter."""
    found: list[ast.stmt] = []
    for statement in body:
        inner = [part for part in children(statement) if isinstance(part, ast.stmt)]
        if any(part in success for part in inner):
            found += [part for part in inner if part not in success]
        elif isinstance(statement, ast.With | ast.AsyncWith | ast.Try):
            found += _without(statement.body, success)
            for handler in getattr(statement, "handlers", []):
                found += handler.body
        elif statement not in success:
            found.append(statement)
    return found


def _flat(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a block, and of each `with` and `try` in it."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.With | ast.AsyncWith):
            yield from _flat(statement.body)
        elif isinstance(statement, ast.Try):
            yield from _flat([*statement.body, *statement.orelse])


def _ends(statements: list[ast.stmt], *how: type[ast.stmt]) -> bool:
    return any(isinstance(statement, how) for statement in statements)


def _raises_itself(node: ast.AST, answer: str) -> bool:
    raises = isinstance(node, ast.Attribute) and node.attr == "raise_for_status"
    return raises and answer in names(node)


# ---------------------------------------------------------------- libraries


def _by_library(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    guarded = {tool.function for tool in reading.guarded}
    for found, function in all_retries(module):
        body = function.body if function is not None else body_of_loop(module, found)
        effect = None if body is None or function in guarded else _risked(reading, body)
        if body is None or effect is None or broad(errors(module, found)):
            continue
        answer = _name_of_answer(module, effect.call)
        if _after_any(module, found) and not _tells_apart(module, body, answer):
            yield Hit(found.node, _message(found.library, effect))


def _after_any(module: Module, found: Retries) -> bool:
    call = found.call
    if call is None or is_open(call) or keyword(call, "giveup") is not None:
        return False
    if any(_ERRORS.fullmatch(name) for name in errors(module, found)):
        return True
    if found.origin == "backoff.on_predicate":
        return _is_bad(module, argument(call, 1, "predicate"))
    match keyword(call, "retry"):
        case ast.Call(func=func, args=[predicate, *_]):
            of_result = module.origin(func) == "tenacity.retry_if_result"
            return of_result and _is_bad(module, predicate)
        case _:
            return False


def _is_bad(module: Module, predicate: ast.AST | None) -> bool:
    """Does a predicate hold for every answer that is no success?"""
    if predicate is None:
        return False
    function = predicate if isinstance(predicate, ast.Lambda) else module.definition(predicate)
    answer = None if function is None else next(parameters(function), None)
    match function:
        case (
            ast.Lambda(body=test) | ast.FunctionDef(body=[ast.Return(value=ast.expr() as test)])
        ) if answer is not None:
            return _says(module, test, answer.arg) == "bad"
        case _:
            return False


def _by_urllib3(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    for call in module.every(ast.Call):
        if not known.URLLIB3_RETRY.fullmatch(module.origin(call.func)):
            continue
        methods = module.value(allowed_methods(call))
        if methods is None or not {"POST", "PATCH"} & constants(methods):
            continue
        statuses = keyword(call, "status_forcelist")
        if statuses is not None and (final := _final_among(module, statuses)):
            yield Hit(
                call,
                f"this Retry sends a POST again after a {final[0]}, which is the same however often"
                " it is asked. Leave out every 4xx but 429, and let @guard.tool retry.",
            )


def _final_among(module: Module, node: ast.AST) -> list[int]:
    value = module.value(node) or node
    if isinstance(value, ast.Call) and module.origin(value.func) in _SETS and value.args:
        value = value.args[0]
    try:
        statuses = _value(module, value, "", 0)
        return [status for status in _FINAL if status in statuses]
    except (_UnknownError, TypeError):
        return []


_SETS = ("builtins.frozenset", "builtins.set", "builtins.list", "builtins.tuple")


def _message(who: str, effect: EffectCall) -> str:
    return (
        f"{who} tries again what {effect.what} after any status: a 400 stays a 400, and after a 500"
        " or 504 it may have been done. Go on only after 429 and 503, or send one key with every"
        " attempt."
    )


def _after_any_status(reading: Reading) -> Iterator[Hit]:
    yield from _by_hand(reading)
    yield from _by_library(reading)
    yield from _by_urllib3(reading)


RULES: LintRules = {"EO307": _after_any_status}
