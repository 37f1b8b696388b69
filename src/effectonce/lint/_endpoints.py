"""Endpoints: does anything tell a repeated request from a new one?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from effectonce.lint import _known as known
from effectonce.lint._effects import BESIDE, by_helper
from effectonce.lint._finding import Hit, LintRules
from effectonce.lint._reading import EffectCall, Reading
from effectonce.lint._source import Function, Module, argument, calls, constants, keyword

MIDDLEWARE = "http.server"  # protects the endpoints of all files
# a package, or a class
_OF_OTHERS = re.compile(r"\w*idempot\w*(?:\..*)?|(?:.*\.)?\w*idempot\w*middleware", re.IGNORECASE)
_LOOKS = re.compile(
    r"idempot|dedup|current_effect|\bguard|once\b|already|\block|_lock\b|unique|duplicate|replay|nonce|processed|exists|conflict"
    r"|get_or_create|\bnx=",
    re.IGNORECASE,
)


def has_middleware(module: Module) -> bool:
    """Does a file import the middleware, or one for the same of others, or is it written there?"""
    names = (*module.modules, *(cls.name for cls in module.every(ast.ClassDef)))
    return any(
        name.startswith(f"effectonce.{MIDDLEWARE}") or _OF_OTHERS.fullmatch(name) for name in names
    )


def _unprotected(reading: Reading) -> Iterator[Hit]:
    for function, route, is_asgi in _endpoints(reading.module):
        if function in reading.tools or _looks(reading.module, function, route):
            continue
        effect = _effect(reading, function, route)
        if effect is not None:
            middleware = "Add IdempotencyMiddleware of effectonce.http.server, or guard"
            advice = middleware if is_asgi else "Guard"
            yield Hit(
                effect.call,
                f"{function.name} {effect.what} for each request, and a client that got no answer"
                f" sends it again: it is done twice. {advice} what it does with"
                " @guard.tool(kind=...).",
                unless=MIDDLEWARE,
            )


def _looks(module: Module, function: Function, route: ast.Call) -> bool:
    """Does it, a dependency or the router look whether it was done? By words: silent if it may."""
    router = module.value(route.func.value) if isinstance(route.func, ast.Attribute) else None
    words = (ast.unparse(node) for node in (function, route, router) if node is not None)
    return any(map(_LOOKS.search, words))


def _effect(reading: Reading, function: Function, route: ast.Call) -> EffectCall | None:
    """The first that a repeat does twice. A POST that asks, sets or counts beside it is none."""
    asks = route.args and known.ASKING_URL.search(reading.text(route.args[0]))
    sets = function.name.strip("_").partition("_")[0] in known.SETTING_FIRST
    for call in calls(function.body):
        effect = reading.effect(call) or by_helper(reading, call)
        if effect is None or effect.keyed or effect.repeatable:
            continue
        if not (effect.http and (asks or sets or BESIDE.search(ast.unparse(call)))):
            return effect
    return None


def _endpoints(module: Module) -> Iterator[tuple[Function, ast.Call, bool]]:
    """The functions for POST or PATCH, where declared, and if our middleware can precede them."""
    for function in module.functions:
        for decorator in function.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            made = _kind(module, decorator)
            if made is not None:
                yield function, decorator, made
                break
    for call in module.every(ast.Call):
        if module.origin(call.func) == "starlette.routing.Route" and _changes(call):
            given = argument(call, 1, "endpoint")
            function_given = module.definition(given) if given is not None else None
            if function_given is not None:
                yield function_given, call, True


def _kind(module: Module, decorator: ast.Call) -> bool | None:
    """Is it of an ASGI server, or of another? None if it is no endpoint that changes something."""
    origin = module.origin(decorator.func)
    if origin.rpartition(".")[2] not in ("post", "patch") and not _changes(decorator):
        return None
    return next((is_asgi for row, is_asgi in known.ENDPOINTS if row.fullmatch(origin)), None)


def _changes(call: ast.Call) -> bool:
    methods = keyword(call, "methods")
    named = set() if methods is None else constants(methods)
    return not {"POST", "PATCH"}.isdisjoint(str(each).upper() for each in named)


RULES: LintRules = {"EO208": _unprotected}
