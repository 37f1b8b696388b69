"""Keys: is this one the same on the next attempt, and another one for another effect?

A key stands where a call takes `idempotency_key=` (or what AWS calls it), under
`Idempotency-Key` in a dict, in `guard.call(key=)`, and in the scope and step of `guard.step`. An
expression is looked into only as far as it hands on what it is made of: `str`, f-strings,
hashes, `+`. What an unknown function makes of a clock is its own business: it may be the week.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from effectonce.lint import _known as known
from effectonce.lint._finding import Hit, LintRules
from effectonce.lint._reading import Reading
from effectonce.lint._source import Function, Module, called, keyword, loads, parameters

_ARGUMENT = re.compile(
    r"idempotency_?key|MessageDeduplicationId|ClientRequestToken|ClientToken", re.IGNORECASE
)
_HEADER = re.compile(r"(?:x-)?idempotency-key", re.IGNORECASE)
_SENT_AS = ("json", "data", "body", "headers", "options", "params")
_WRITES_DOWN = known.words(
    "add values insert save get_or_create update_or_create bulk_create replace"
)
_HANDS_ON = known.words(
    "builtins.str builtins.repr builtins.int builtins.format builtins.bytes uuid.uuid5 uuid.uuid3"
    " uuid.UUID json.dumps"
)
_HASHES = re.compile(r"hashlib\.\w+|hmac\.(?:new|digest)|zlib\.crc32|base64\.\w+")
_METHODS = known.words(
    "encode decode hex hexdigest digest join format isoformat strftime timestamp lower upper strip"
    " replace"
)


Says = Callable[[Module, ast.AST], str]


@dataclass(frozen=True, slots=True)
class Key:
    """An expression that is used as a key."""

    node: ast.expr
    # it is all of the key; in a step the tool and its arguments are in it as well
    whole: bool = True


def keys(reading: Reading) -> Iterator[Key]:
    """Where this file says which key something has."""
    module = reading.module
    for call in module.every(ast.Call):
        for given in call.keywords:
            if given.arg and _ARGUMENT.fullmatch(given.arg):
                yield Key(given.value)
        yield from _of_guard(reading, call)
    for entries in module.every(ast.Dict):
        for name, value in zip(entries.keys, entries.values, strict=True):
            if isinstance(name, ast.Constant) and _is_sent(module, entries, str(name.value)):
                yield Key(value)
    for header, assigned in set_items(module):
        if _HEADER.fullmatch(header):
            yield Key(assigned.value)


def set_items(module: Module) -> Iterator[tuple[str, ast.Assign]]:
    """`headers["Idempotency-Key"] = ...`: the name, and the statement."""
    for assigned in module.every(ast.Assign):
        match assigned.targets:
            case [ast.Subscript(slice=ast.Constant(value=str(name)))]:
                yield name, assigned
            case _:
                pass


def _is_sent(module: Module, entries: ast.Dict, name: str) -> bool:
    """Is it a header, or a field that a call sends? A row may hold a fresh key: that stores it."""
    if _HEADER.fullmatch(name):
        return True
    above = module.parents.get(entries)
    return (
        _ARGUMENT.fullmatch(name) is not None
        and isinstance(above, ast.keyword)
        and above.arg in _SENT_AS
    )


def _of_guard(reading: Reading, call: ast.Call) -> Iterator[Key]:
    func = call.func
    if not isinstance(func, ast.Attribute) or not reading.is_guard(func.value):
        return
    key = keyword(call, "key")
    if func.attr == "call" and key is not None:
        yield Key(key)
    if func.attr == "step":
        for part in (*call.args[:2], keyword(call, "scope"), keyword(call, "step")):
            if part is not None:
                yield Key(part, whole=False)


# ---------------------------------------------------------------- what a key is made of


def parts(
    module: Module, node: ast.AST, *, made_now: bool = False, depth: int = 0
) -> Iterator[ast.AST]:
    """What a key is made of, through all that hands it on; only what is made now, if *made_now*."""
    if depth > 8:
        return
    match node:
        case ast.JoinedStr() | ast.Tuple() | ast.List():
            inner: list[ast.AST] = list(ast.iter_child_nodes(node))
        case ast.FormattedValue(value=value) | ast.Await(value=value):
            inner = [value]
        case ast.BinOp(op=ast.Add() | ast.Mod(), left=left, right=right):
            inner = [left, right]
        case ast.Call() if _hands_on(module, node):
            inner = [*node.args]
            if isinstance(node.func, ast.Attribute) and _is_method(module, node):
                inner.insert(0, node.func.value)
        case ast.Attribute(attr="hex" | "int" | "bytes", value=ast.Call() as value):
            inner = [value]
        case ast.Name() if (meant := module.value(node)) is not None and meant is not node:
            if not isinstance(meant, ast.Constant):
                yield node
            inner = [] if made_now and _is_kept(module, node, meant) else [meant]
        case _:
            yield node
            return
    if isinstance(node, ast.Call):
        yield node
    for each in inner:
        yield from parts(module, each, made_now=made_now, depth=depth + 1)


def _hands_on(module: Module, call: ast.Call) -> bool:
    origin = module.origin(call.func)
    return origin in _HANDS_ON or _HASHES.fullmatch(origin) is not None or _is_method(module, call)


def _is_method(module: Module, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in _METHODS:
        return False
    return call.func.attr != "replace" or not known.CLOCK.match(module.origin(call.func))


def _is_kept(module: Module, name: ast.Name, value: ast.AST) -> bool:
    """Is it used beyond this key, or made before a loop? It may be the same on the next attempt."""
    scope = module.scope_of(name)
    if isinstance(scope.node, ast.Module) or name.id not in scope.names:
        # made outside this function: it was there before the attempt
        return not isinstance(value, ast.Constant)
    uses = loads(getattr(scope.node, "body", []), name.id)
    return len(uses) > 1 or _loop_around(module, name) is not _loop_around(module, value)


def _loop_around(module: Module, node: ast.AST) -> ast.AST | None:
    at: ast.AST | None = node
    while at is not None and not isinstance(at, ast.For | ast.AsyncFor | ast.While | Function):
        at = module.parents.get(at)
    return at


# ---------------------------------------------------------------- the rules


def _reported(reading: Reading, says: Says, message: str) -> Iterator[Hit]:
    """Each key, if *says* has something to say of a part of it: *message* is about that."""
    for key in keys(reading):
        said = (says(reading.module, part) for part in parts(reading.module, key.node))
        if what := next(filter(None, said), ""):
            yield Hit(key.node, message.format(what))


def _fresh(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    for key in keys(reading):
        if _is_written_down(module, key.node):
            continue
        made_now = parts(module, key.node, made_now=True)
        if origin := next((name for part in made_now if (name := _changing(module, part))), ""):
            yield Hit(
                key.node,
                f"this key is made with {origin}(), so that each attempt has another one and is"
                " done again. Make it of ids that are the same on the next attempt, or write it"
                " down before the first one.",
            )


def _changing(module: Module, part: ast.AST) -> str:
    """What makes another one each time, if this is a call of it."""
    origin = module.origin(part.func) if isinstance(part, ast.Call) else ""
    coarse = known.CLOCK.match(origin) and _is_coarse(module, part)
    return origin if known.FRESH.fullmatch(origin) and not coarse else ""


def _is_written_down(module: Module, key: ast.expr) -> bool:
    """Is it in an object, a row or headers of a loop? Then the next attempt has the same one."""
    given = module.parents.get(key)
    call = module.parents.get(given) if isinstance(given, ast.keyword) else None
    if isinstance(call, ast.Call):
        name = called(call)
        # of a model, as far as the file shows
        row = name in ("create", "acreate") and not module.origin(call.func)
        return name[:1].isupper() or name in _WRITES_DOWN or row
    assigned = module.parents.get(given) if isinstance(given, ast.Dict) else None
    function = module.function_around(key)
    if not isinstance(assigned, ast.Assign) or function is None:
        return False
    names = [target.id for target in assigned.targets if isinstance(target, ast.Name)]
    uses = loads(function.body, *names)
    return any(_loop_around(module, use) is not _loop_around(module, assigned) for use in uses)


def _is_coarse(module: Module, clock: ast.AST) -> bool:
    """Is only the day, or the like, taken of a clock? A report of the week is keyed by the week."""
    above = module.parents.get(clock)
    match above:
        case ast.Attribute(attr=attr) if attr in known.COARSE:
            return True
        case ast.Attribute(attr="strftime" | "format"):
            call = module.parents.get(above)
            given = call.args[0] if isinstance(call, ast.Call) and call.args else None
            written = str(given.value) if isinstance(given, ast.Constant) else ""
            return not known.FINE_FORMAT.search(written)
        case ast.FormattedValue(format_spec=ast.JoinedStr(values=[ast.Constant(value=str(spec))])):
            return "%" in spec and not known.FINE_FORMAT.search(spec)
        case _:
            return False


def _per_attempt(reading: Reading) -> Iterator[Hit]:
    return _reported(
        reading,
        _attempt_or_call,
        "{} is in this key, and the next attempt has another one, so that it is done again. Make"
        " the key of what stays: the conversation or task, the step, the ids it is about.",
    )


def _attempt_or_call(_: Module, node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) if (
            name.lower() in known.ATTEMPT | known.CALL_IDS
        ):
            return name
        case ast.Attribute(value=ast.Name(id=owner), attr="id" | "call_id" as name) if (
            owner.lower() in known.TOOL_CALLS
        ):
            return f"{owner}.{name}"
        case ast.Subscript(slice=ast.Constant(value="tool_call_id" | "tool_use_id" as name)):
            return str(name)
        case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value="id")) if (
            owner.lower() in known.TOOL_CALLS
        ):
            return f'{owner}["id"]'
        case _:
            return ""


def _per_request(reading: Reading) -> Iterator[Hit]:
    return _reported(
        reading,
        _request_id,
        "{} is in this key and names one request: a caller that got no answer asks again in another"
        " one, and it is done again. Use the caller's Idempotency-Key, or ids of what it is about.",
    )


def _request_id(module: Module, node: ast.AST) -> str:
    """What names one request, if this does."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) if name.lower() in known.REQUEST_NAMES:
            return name
        case ast.Attribute(
            value=ast.Name(id=owner) | ast.Attribute(value=ast.Name(), attr=owner), attr=name
        ) if (
            name in known.REQUEST_KEPT
            and owner in known.REQUEST_KEPT_BY
            and not ast.unparse(node).endswith(_OF_CELERY)
        ):
            return ast.unparse(node)
        case (
            ast.Subscript(value=owned, slice=ast.Constant(value=str(name)))
            | ast.Call(
                func=ast.Attribute(value=owned, attr="get"),
                args=[ast.Constant(value=str(name)), *_],
            )
        ) if known.REQUEST_HEADER.fullmatch(name) and _HEADERS.search(ast.unparse(owned)):
            return name
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=name) | ast.Attribute(attr=name), attr="get"),
            args=[],
        ):
            return name if known.REQUEST_ASKED.fullmatch(name.lower()) else ""
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as func):
            is_known = bool(module.origin(func)) or module.definition(func) is not None
            return f"{name}()" if is_known and known.REQUEST_ASKED.fullmatch(name) else ""
        case _:
            return ""


_HEADERS = re.compile(r"headers|META|environ", re.IGNORECASE)
_OF_CELERY = ".request.correlation_id"  # a task that is tried again has the same one


def _per_process(reading: Reading) -> Iterator[Hit]:
    return _reported(
        reading,
        _differs,
        "{}, so that after a restart, or on another worker, the same effect has another key and is"
        " done again. Use content_key(), or a hash of json.dumps(..., sort_keys=True).",
    )


def _differs(module: Module, call: ast.AST) -> str:
    if not isinstance(call, ast.Call):
        return ""
    given = call.args[0] if call.args else None
    match module.origin(call.func):
        case "builtins.hash":
            return "hash() of a text is another number in each process"
        case "builtins.id":
            return "id() is an address in memory"
        case "builtins.str" | "builtins.repr" if _type_of(module, given) == "dict":
            return "the text of a dict depends on the order in which it was filled"
        case "builtins.str" | "builtins.repr" if _type_of(module, given) == "set":
            return "a set has another order in each process"
        case "json.dumps" if all(each.arg not in (None, "sort_keys") for each in call.keywords):
            if _type_of(module, given) not in ("dict", "") or _is_in_order(module.value(given)):
                return ""
            return (
                "json.dumps() without sort_keys=True writes a dict in the order in which it was"
                " filled"
            )
        case _:
            return ""


_OF_FIELDS = known.words("model_dump asdict _asdict dict to_dict list sorted tuple")


def _is_in_order(value: ast.AST | None) -> bool:
    """Is it written out here, or made of the fields of a model, which have one order?"""
    match value:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name in _OF_FIELDS
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return False
        case _:
            return True


def _type_of(module: Module, node: ast.AST | None) -> str:
    """`dict`, `set`, `list` and so on, if declared; no dict that is written out: it is ordered."""
    match value := module.value(node):
        case ast.Set() | ast.SetComp():
            return "set"
        case ast.Call():
            origin = module.origin(value.func)
            return origin.removeprefix("builtins.") if origin.startswith("builtins.") else ""
        case ast.Name():
            return _declared(module, value)
        case _:
            return ""


def _declared(module: Module, name: ast.Name) -> str:
    """The type of a parameter."""
    function = module.scope_of(name).node
    named = parameters(function) if isinstance(function, Function) else ()
    arg = next((arg for arg in named if arg.arg == name.id), None)
    if arg is None:
        return ""
    if isinstance(function, Function) and arg is function.args.kwarg:
        return "dict"
    typed = arg.annotation.value if isinstance(arg.annotation, ast.Subscript) else arg.annotation
    return module.origin(typed).rpartition(".")[2].lower()


def _constant(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    for key in keys(reading):
        function = module.function_around(key.node)
        asked = () if function is None else parameters(function)
        if all(arg.arg in ("self", "cls") for arg in asked):
            continue  # a script that runs once has one key
        if key.whole and _is_constant(module, key.node):
            yield Hit(
                key.node,
                "this key is the same for whatever the function is called with: the second effect"
                " is taken for a repeat of the first and not done. Put the ids into it that tell"
                " two effects apart.",
            )


def _is_constant(module: Module, node: ast.AST) -> bool:
    match module.value(node):
        case ast.Constant(value=str(text)):
            return bool(text) and not _HEADER.fullmatch(text)
        case ast.JoinedStr(values=values) | ast.Tuple(elts=values):
            return bool(values) and all(_is_constant(module, each) for each in values)
        case ast.Call(func=ast.Name(id="Stable"), args=[given]):
            return _is_constant(module, given)
        case _:
            return False


def _personal(reading: Reading) -> Iterator[Hit]:
    module = reading.module
    for key in keys(reading):
        made_of = list(parts(module, key.node))
        calls = (part for part in made_of if isinstance(part, ast.Call))
        if any(_HASHES.fullmatch(module.origin(call.func)) for call in calls):
            continue
        if name := next((name for part in made_of if (name := _personal_name(part))), ""):
            yield Hit(
                key.node,
                f"{name} is in this key: keys are stored, logged and sent to others, and a person"
                " who changes it has another key. Use the id of the account.",
            )


def _personal_name(node: ast.AST) -> str:
    match node:
        case (
            ast.Name(id=name)
            | ast.Attribute(attr=name)
            | ast.Subscript(slice=ast.Constant(value=str(name)))
        ) if name.lower() in known.PERSONAL:
            return name
        case _:
            return ""


def _shown_to_the_model(reading: Reading) -> Iterator[Hit]:
    for tool in reading.tools.values():
        if tool.sort not in ("agent", "guarded"):
            continue
        for arg in parameters(tool.function):
            if re.fullmatch(r"idempotency_?key", arg.arg, re.IGNORECASE):
                yield Hit(
                    arg,
                    f"{tool.function.name} asks the model for its key: it makes up another one each"
                    " time, or the same for two effects. Take the key from the step:"
                    " current_effect().downstream_key.",
                )


RULES: LintRules = {
    "EO101": _fresh,
    "EO102": _per_attempt,
    "EO103": _per_process,
    "EO104": _constant,
    "EO105": _personal,
    "EO106": _shown_to_the_model,
    "EO107": _per_request,
}
