"""Providers: does the one that gets the key take it, and keep it as long as the tool says?

A provider is known by its name, `@guard.tool(provider="mangopay")`; by a header that no other
has, `X-Qonto-Idempotency-Key`; or by an operation of boto3. `Idempotency-Key` alone says nothing:
half of them have it. Where several have one header, a rule speaks only if it holds for each.

Packs, and the shapes of keys, are imported when a file asks for them: most files do not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from effectonce.lint._finding import Hit, LintRules
from effectonce.lint._keys import set_items
from effectonce.lint._reading import DeclaredTool, Reading
from effectonce.lint._source import Module, constants, keyword

if TYPE_CHECKING:
    from effectonce._core.key_shapes import KeyShape
    from effectonce.providers import Provider

_EFFECTS = 16  # made-up ones, whose keys are tried
_DEFAULT_S = 86400.0  # downstream="key"
_UNITS_S = {"days": 86400.0, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "weeks": 604800.0}
_SHARED = frozenset({"idempotency-key", "x-idempotency-key"})
_AWS = re.compile(r"boto3\.([a-z0-9-]+)\(\)\.([a-z0-9_]+)")


# ---------------------------------------------------------------- which provider


@cache
def _by_header() -> dict[str, tuple[Provider, ...]]:
    """Those that have a header of their own, by its name in small letters."""
    from effectonce.providers import provider, providers  # noqa: PLC0415  # with the first question

    found: dict[str, tuple[Provider, ...]] = {}
    for each in map(provider, providers()):
        if each.key.where == "header" and each.key.name is not None:
            name = each.key.name.lower()
            found[name] = (*found.get(name, ()), each)
    return {name: those for name, those in found.items() if name not in _SHARED}


@cache
def _of_aws(service: str, method: str) -> tuple[Provider, ...]:
    """The operation of that method of a client, if botocore is installed and knows it."""
    return _named(f"aws.{service}.{''.join(map(str.capitalize, method.split('_')))}")[0]


def _declared(tool: DeclaredTool) -> str | None:
    given = tool.given("provider")
    name = given.value if isinstance(given, ast.Constant) else None
    return name if isinstance(name, str) else None


def _named(name: str) -> tuple[tuple[Provider, ...], str]:
    """The provider of that name, or what is wrong with the name."""
    from effectonce.errors import ContractViolation  # noqa: PLC0415  # with the first question
    from effectonce.providers import provider  # noqa: PLC0415

    try:
        return (provider(name),), ""
    except ContractViolation as error:
        return (), "" if "is not installed" in str(error) else str(error)


# ---------------------------------------------------------------- where keys go


def _handed(reading: Reading) -> Iterator[tuple[ast.expr, tuple[Provider, ...]]]:
    """Each expression that a provider gets as its key."""
    module = reading.module
    for entries in module.every(ast.Dict):
        for name, value in zip(entries.keys, entries.values, strict=True):
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield value, _of_header(reading, entries, name.value)
    for header, assigned in set_items(module):
        yield assigned.value, _of_header(reading, assigned, header)
    for call in module.every(ast.Call):
        for found in _of_call(module, call):
            given = keyword(call, str(found.key.name))
            if given is not None:
                yield given, (found,)


def _of_header(reading: Reading, node: ast.AST, name: str) -> tuple[Provider, ...]:
    found = _by_header().get(name.lower(), ())
    function = reading.module.function_around(node)
    tool = None if function is None else reading.tools.get(function)
    if found or tool is None or (declared := _declared(tool)) is None:
        return found
    of_header = (each for each in _named(declared)[0] if each.key.where == "header")
    return tuple(each for each in of_header if str(each.key.name).lower() == name.lower())


def _of_call(module: Module, call: ast.Call) -> tuple[Provider, ...]:
    method = _AWS.fullmatch(module.origin(call.func))
    return () if method is None else _of_aws(*method.groups())


# ---------------------------------------------------------------- which key


def _samples(module: Module, node: ast.expr) -> tuple[str, list[str]]:
    """How it is written, and what it gives for some effects: nothing, if it is none of ours."""
    from effectonce._core.key_shapes import shaped_key  # noqa: PLC0415  # with the first key
    from effectonce._core.keys import downstream_key  # noqa: PLC0415

    effects = [f"{n:040x}" for n in range(_EFFECTS)]
    match module.value(node):
        case ast.Attribute(value=effect, attr="downstream_key") if _is_effect(module, effect):
            return "downstream_key", [downstream_key(each, "lint") for each in effects]
        case ast.Call(func=ast.Attribute(value=effect, attr="key_as")) as call if _is_effect(
            module, effect
        ):
            shape = _shape(call)
            made = [] if shape is None else [shaped_key(shape, each, "lint") for each in effects]
            return ast.unparse(call).partition(".")[2], made
        case _:
            return "", []


def _is_effect(module: Module, node: ast.expr) -> bool:
    return module.origin(node) == "effectonce.current_effect()"


def _shape(call: ast.Call) -> KeyShape | None:
    """What `key_as` is asked for, if all of it is written there."""
    from effectonce._core.key_shapes import KeyShape  # noqa: PLC0415  # with the first key

    names = {"min": "least", "max": "most", "alphabet": "alphabet", "weak": "weak", "form": "form"}
    try:
        given = {names[str(each.arg)]: ast.literal_eval(each.value) for each in call.keywords}
        return KeyShape(*map(ast.literal_eval, call.args), **given)
    except (KeyError, ValueError, TypeError):
        return None


def _refusal(found: Provider, keys: list[str]) -> str:
    """Why a provider refuses one of them."""
    key = found.key
    lengths = [len(each) for each in keys]
    if key.length_max is not None and max(lengths) > key.length_max:
        return f"{found.title} takes at most {key.length_max} characters, and it has {max(lengths)}"
    if key.length_min is not None and min(lengths) < key.length_min:
        return f"{found.title} wants {key.length_min} characters, and it has {min(lengths)}"
    if key.pattern is not None and not all(re.fullmatch(key.pattern, each) for each in keys):
        return f"{found.title} takes {key.pattern} only"
    return ""


def _refused(reading: Reading) -> Iterator[Hit]:
    for tool in reading.guarded:
        name = _declared(tool)
        if name is not None and (wrong := _named(name)[1]):
            assert tool.declared is not None
            yield Hit(tool.declared, f"{wrong} Nothing is called before the name is right.")
    if not _mentions_a_key(reading.module):
        return
    for node, those in _handed(reading):
        how, keys = _samples(reading.module, node) if those else ("", [])
        if how == "downstream_key" and _shapes_it(reading, node):
            continue
        why = [_refusal(each, keys) for each in those] if keys else []
        if why and all(why):
            fits = "" if those[0].key.form != "uuid" else ': key_as("uuid")'
            yield Hit(
                node,
                f"this key will be refused: {why[0]}. Nothing is done, every time. Ask for another"
                f" shape than {how}{fits}.",
            )


def _shapes_it(reading: Reading, node: ast.AST) -> bool:
    """Is it in a tool that names its provider, or may such a tool call it? Then it fits."""
    function = reading.module.function_around(node)
    tool = None if function is None else reading.tools.get(function)
    tools = reading.guarded if tool is None or tool.declared is None else [tool]
    return any(each.given("provider") is not None for each in tools)


def _mentions_a_key(module: Module) -> bool:
    return any(node.attr in ("downstream_key", "key_as") for node in module.every(ast.Attribute))


# ---------------------------------------------------------------- windows


def _forgotten(reading: Reading) -> Iterator[Hit]:
    for tool in reading.guarded:
        declared_s = _window_s(reading.module, tool)
        if tool.declared is None or tool.kind == "read" or declared_s is None:
            continue
        those = _keepers(reading, tool)
        windows = [each.window_s for each in those if isinstance(each.window_s, int)]
        if windows and len(windows) == len(those) and declared_s > max(windows):
            yield Hit(
                tool.declared,
                f"{tool.function.name} says that its key counts for {_span(declared_s)}, and"
                f" {those[0].title} forgets it after {_span(max(windows))}: a repeat after that is"
                f" done a second time. Declare Downstream.key(window={max(windows)}).",
            )


def _keepers(reading: Reading, tool: DeclaredTool) -> tuple[Provider, ...]:
    """Who gets its key: who it names, or whose header, or operation, it uses. None, if several."""
    name = _declared(tool)
    if name is not None:
        return _named(name)[0]
    nodes = [node for part in tool.function.body for node in ast.walk(part)]
    texts = (value for part in tool.function.body for value in constants(part))
    words = {text.lower() for text in texts if isinstance(text, str)}
    headers = sorted(words & _by_header().keys()) if any("-" in word for word in words) else []
    called = [
        found
        for node in nodes
        if isinstance(node, ast.Call)
        for found in _of_call(reading.module, node)
        if keyword(node, str(found.key.name)) is not None
    ]
    if len(headers) + len(called) != 1:
        return ()
    return _by_header()[headers[0]] if headers else tuple(called)


def _window_s(module: Module, tool: DeclaredTool) -> float | None:
    """How long its key counts, if that is written there."""
    match module.value(tool.given("downstream")):
        # with provider=, the window of the provider holds
        case ast.Constant(value="key") if _declared(tool) is None:
            return _DEFAULT_S
        case ast.Call(func=ast.Attribute(attr="key")) as call if module.is_ours(call.func):
            window = keyword(call, "window")
            return _DEFAULT_S if window is None else _seconds(module, window)
        case _:
            return None


def _seconds(module: Module, node: ast.expr) -> float | None:
    match module.value(node):
        case ast.Constant(value=int(number) | float(number)):
            return float(number)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            factors = _seconds(module, left), _seconds(module, right)
            return None if factors[0] is None or factors[1] is None else factors[0] * factors[1]
        case ast.Call(args=[], keywords=given) as call if (
            module.origin(call.func) == "datetime.timedelta"
        ):
            return _sum(module, given)
        case _:
            return None


def _sum(module: Module, given: list[ast.keyword]) -> float | None:
    parts = [
        number * _UNITS_S[str(each.arg)]
        for each in given
        if each.arg in _UNITS_S and (number := _seconds(module, each.value)) is not None
    ]
    return sum(parts) if len(parts) == len(given) else None


def _span(length_s: float) -> str:
    from effectonce._text import span  # noqa: PLC0415  # with the first finding

    return span(length_s)


RULES: LintRules = {"EO508": _refused, "EO509": _forgotten}
