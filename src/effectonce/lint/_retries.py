"""Retries: one layer, with an end, apart from each other, and only of what may be repeated."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from effectonce.lint import _known as known
from effectonce.lint._attempts import (
    Loop,
    Retries,
    all_retries,
    errors,
    is_endless,
    is_safe,
    loops,
    retries,
    slept,
    waits_alike,
)
from effectonce.lint._effects import does_something, is_verb
from effectonce.lint._finding import Hit, LintRules
from effectonce.lint._reading import EffectCall, Reading
from effectonce.lint._source import (
    Function,
    Module,
    callee,
    calls,
    caught,
    constants,
    keyword,
    own,
)


def _two_layers(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    by_hand = list(loops(module))
    for tool in reading.guarded:
        for decorator in tool.function.decorator_list:
            found = retries(module, decorator)
            if found is not None and not is_safe(module, found):
                yield Hit(decorator, _layers(found.library, tool.function.name))
        for call in calls(tool.function.body):
            found = _retries_inside(reading, call)
            if found is not None and not is_safe(module, found):
                yield Hit(call, _layers(found.library, tool.function.name))
        for loop in by_hand:
            inside = module.function_around(loop.node) is tool.function
            if inside and risked(reading, loop.attempt.body) is not None:
                yield Hit(loop.node, _layers("a loop", tool.function.name))


def _layers(who: str, name: str) -> str:
    return (
        f"{who} tries again inside {name}, which effectonce tries again too: three of each are"
        " nine, and the record knows of three. Let effectonce do it: @guard.tool(...,"
        " retry=Retry(attempts=...))."
    )


def _retries_inside(reading: Reading, call: ast.Call) -> Retries | None:
    """Does a library retry an effect, or a function of this file with it? Reading is no effect."""
    module = reading.module
    found = retries(module, call)
    if found is not None:
        body = body_of_loop(module, found)
        return found if body is None or does_something(reading, body) else None
    helper = module.definition(call.func)
    if helper is None or not (is_verb(helper.name) or does_something(reading, helper.body)):
        return None
    decorators = (retries(module, each) for each in helper.decorator_list)
    return next((found for found in decorators if found is not None), None)


def risked(reading: Reading, nodes: list[ast.stmt]) -> EffectCall | None:
    """The first effect in there that a repeat would do twice."""
    effects = reading.effects(nodes)
    return next((each for each in effects if not each.keyed and not each.repeatable), None)


def _retries_everything(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    guarded = {tool.function for tool in reading.guarded}
    for found, function in all_retries(module):
        body = function.body if function is not None else body_of_loop(module, found)
        around = {function, module.function_around(found.node)}
        if body is None or around & guarded or is_safe(module, found):
            continue
        effect, error = risked(reading, body), broad(errors(module, found))
        if effect is not None and error:
            yield Hit(found.node, _again(found.library, effect, error))
    for loop in loops(module):
        effect = risked(reading, loop.attempt.body)
        error = next((what for each in loop.handlers if (what := caught_by(module, each))), "")
        if effect is not None and error and module.function_around(loop.node) not in guarded:
            yield Hit(loop.node, _again("this loop", effect, error))


def body_of_loop(module: Module, found: Retries) -> list[ast.stmt] | None:
    """Of `for attempt in Retrying(...)`."""
    above = module.parents.get(found.node)
    return above.body if isinstance(above, ast.For | ast.AsyncFor) else None


def broad(names: list[str]) -> str:
    """What is caught, if an answer may have been lost; "" if it is less."""
    for name in names:
        if name in known.EVERYTHING:
            return "any error"
        if known.LOST_ANSWER.fullmatch(name):
            return name.removeprefix("builtins.")
    return ""


def caught_by(module: Module, handler: ast.ExceptHandler) -> str:
    """The same of a handler."""
    if handler.type is None:
        return "any error"
    return broad([module.origin(each) for each in caught(handler)])


def _again(who: str, effect: EffectCall, error: str) -> str:
    return (
        f"after {error} {who} tries again what {effect.what}: if only the answer was lost, it is"
        " done twice. Guard it with @guard.tool(kind=...), or send one key with every attempt."
    )


# ---------------------------------------------------------------- an end, and jitter


def _without_end(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    for found, _ in all_retries(module):
        if is_endless(module, found):
            yield Hit(found.node, f"{found.library} never gives up here: {_END}")
    for loop in loops(module):
        if (
            _runs_for_ever(module, loop)
            and any(slept(module, loop))
            and all(caught_by(module, each) for each in loop.handlers)
        ):
            yield Hit(loop.node, f"this loop never gives up: {_END}")


_END = (
    "its caller may never get an answer, and an outage keeps every caller. Give it a number of"
    " attempts and a deadline."
)


def _runs_for_ever(module: Module, loop: Loop) -> bool:
    test = loop.node.test if isinstance(loop.node, ast.While) else None
    if not isinstance(test, ast.Constant) or not test.value:
        return False
    tried = set(own(loop.attempt.body)) | set(own(loop.attempt.orelse))
    others = [node for node in own(loop.node.body) if node not in tried]
    if any(isinstance(node, ast.Return | ast.Break | ast.Raise) for node in others):
        return False
    return all(_only_waits_or_tells(module, node) for node in others if isinstance(node, ast.Call))


TELLS = known.words(
    "debug info warning warn error exception critical log print format increment inc"
)


def _only_waits_or_tells(module: Module, call: ast.Call) -> bool:
    """Another function may raise when it has had enough."""
    origin = module.origin(call.func)
    logs = isinstance(call.func, ast.Attribute) and call.func.attr in TELLS
    return logs or origin in known.SLEEP or origin.startswith(("builtins.", "random.", "logging."))


def _without_jitter(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    for found, _ in all_retries(module):
        if how := waits_alike(module, found):
            yield Hit(found.node, f"{found.library} waits by {how}: {_TOGETHER}")
    for loop in loops(module):
        if not any(_is_of_others(module, handler) for handler in loop.handlers):
            continue
        for call in slept(module, loop):
            grows = bool(call.args) and _grows(module, loop, call.args[0])
            around = module.function_around(loop.node) or loop.node
            if grows and not re.search("random|jitter|uniform", ast.unparse(around)):
                yield Hit(call, f"this wait grows and is the same for all callers: {_TOGETHER}")


def _is_of_others(module: Module, handler: ast.ExceptHandler) -> bool:
    """May it come from a service? A file that is not there yet keeps no other caller waiting."""
    names = [module.origin(each) for each in caught(handler)]
    others = [name for name in names if not name.startswith("builtins.")]
    return bool(caught_by(module, handler)) or bool(others)


_TOGETHER = (
    "all that failed together come again together, and the service is down again. Wait a random"
    " part of it: wait_full_jitter() of effectonce.integrations.tenacity, or random.uniform(0,"
    " delay)."
)


def _grows(module: Module, loop: Loop, given: ast.expr) -> bool:
    value = module.value(given)
    if value is not None and any(isinstance(node, ast.Pow) for node in ast.walk(value)):
        return True
    changed = (node for node in own(loop.node.body) if isinstance(node, ast.AugAssign))
    grown = [node.target for node in changed if isinstance(node.op, ast.Mult)]
    return isinstance(given, ast.Name) and any(given.id == getattr(t, "id", "") for t in grown)


# ---------------------------------------------------------------- clients


def _clients(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    if not reading.guarded:
        return
    for call in module.every(ast.Call):
        if _sends_posts_again(module, call):
            yield Hit(call, _RESENDS)
    for setting in (*module.every(ast.Assign), *module.every(ast.Call)):
        if _stripe_retries(module, setting):
            yield Hit(setting, _SDK.format("Stripe"))
    reported: set[ast.AST] = set()
    for tool in reading.guarded:
        for node in own(tool.function.body):
            if not isinstance(node, ast.Name | ast.Attribute):
                continue
            made, above = module.value(node), module.parents.get(node)
            if not known.SDKS.fullmatch(module.origin(node)) or not isinstance(made, ast.Call):
                continue
            once = isinstance(above, ast.Attribute) and above.attr == "with_options"
            if made not in reported and not once and _max_retries(made) != 0:
                reported.add(made)
                yield Hit(made, _SDK.format(module.origin(made).partition(".")[0]))


_RESENDS = (
    "this Retry sends a POST again by itself when its answer was lost, without a check whether that"
    " is safe. Leave POST out of allowed_methods, and let @guard.tool retry."
)
_SDK = (
    "this client of {} tries again by itself under a guarded tool: its attempts multiply, and the"
    " record does not know of them. Use without_retries(client) of effectonce.retries.clients."
)


def _max_retries(made: ast.Call) -> object:
    given = keyword(made, "max_retries")
    return given.value if isinstance(given, ast.Constant) else "unknown"


def _stripe_retries(module: Module, node: ast.AST) -> bool:
    match node:
        case ast.Assign(targets=[target], value=ast.Constant(value=int(times))):
            return times > 0 and module.origin(target) == "stripe.max_network_retries"
        case ast.Call(func=func):
            given = keyword(node, "max_network_retries")
            tries = isinstance(given, ast.Constant) and bool(given.value)
            return tries and module.origin(func) == "stripe.StripeClient"
        case _:
            return False


def _sends_posts_again(module: Module, call: ast.Call) -> bool:
    if not known.URLLIB3_RETRY.fullmatch(module.origin(call.func)):
        return False
    given = allowed_methods(call)
    if isinstance(given, ast.Constant):
        return given.value in (None, False)
    meant = module.value(given)
    return meant is not None and "POST" in constants(meant)


def allowed_methods(call: ast.Call) -> ast.expr | None:
    """The methods that a `Retry` of urllib3 sends again."""
    return keyword(call, "allowed_methods") or keyword(call, "method_whitelist")


# ---------------------------------------------------------------- errors that stay


def _final(reading: Reading) -> Iterator[Hit]:
    yield from _retried(
        reading,
        known.FINAL,
        "{1} tries again after {0}, which is the same however often it is asked. Leave it out, and"
        " fail at once.",
    )


def _open_circuit(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    yield from _retried(
        reading,
        known.OPEN_CIRCUIT,
        "{1} tries again after {0}: an open circuit says that the service is down, and nothing was"
        " sent. Fail, or fall back.",
    )
    for function in reading.module.functions:
        outer = _retrying_decorator_above_breaker(module, function)
        if outer is not None:
            yield Hit(
                outer.node,
                f"{outer.library} stands above the breaker of {function.name} and tries again while"
                " it is open. Put it below, or leave its error out.",
            )


def _retried(reading: Reading, pattern: re.Pattern[str], message: str) -> Iterator[Hit]:
    module = reading.module
    for found, _ in all_retries(module):
        after = filter(pattern.fullmatch, errors(module, found))
        if name := next(after, ""):
            yield Hit(found.node, message.format(name, found.library))
    for loop in loops(module):
        for handler in loop.handlers:
            for name in map(module.origin, caught(handler)):
                if pattern.fullmatch(name):
                    yield Hit(handler, message.format(name, "this loop"))


def _retrying_decorator_above_breaker(module: Module, function: Function) -> Retries | None:
    outer: Retries | None = None
    for decorator in function.decorator_list:
        outer = outer or retries(module, decorator)
        breaks = known.BREAKERS.fullmatch(module.origin(callee(decorator)))
        if breaks and outer is not None and "builtins.Exception" in errors(module, outer):
            return outer
    return None


RULES: LintRules = {
    "EO301": _two_layers,
    "EO302": _retries_everything,
    "EO303": _without_end,
    "EO304": _without_jitter,
    "EO305": _clients,
    "EO306": _final,
    "EO401": _open_circuit,
}
