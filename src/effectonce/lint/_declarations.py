"""Declarations: does a tool do what its contract says?

A tool is followed into the functions of its file. What those hand to a function of another file,
to a value that the file does not tell, or to a client with hooks of its own may read the
effect's key or its connection there: then nothing is reported. So a rule speaks only where the
effect itself is visible, and everything around it is a client, a database driver or the standard
library.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from effectonce.lint import _known as known
from effectonce.lint._effects import starts
from effectonce.lint._finding import Hit, LintRules
from effectonce.lint._reading import DeclaredTool, Reading
from effectonce.lint._source import Function, Module, calls, given, loads, names, own

_PACKAGES = known.words(
    "builtins requests niquests httpx httpx2 aiohttp urllib3 stripe braintree razorpay aiosmtplib"
    " sendgrid resend postmarker boto3 kafka aiokafka confluent_kafka twilio slack_sdk telegram"
    " psycopg psycopg2 asyncpg aiosqlite pymysql MySQLdb"
) | frozenset(sys.stdlib_module_names)
_DATABASE = re.compile(
    r"(?:sqlite3|aiosqlite|psycopg2?|asyncpg|pymysql|MySQLdb)\.(?:[\w.]+)?\(\)\.(?:[\w.()]+\.)?(?:execute\w*|commit|copy\w*)"
)
_WRITES = re.compile(
    r"\s*(?:insert|update|delete|merge|replace|truncate|drop|alter|create)\b", re.IGNORECASE
)
# Methods of strings, numbers, dicts, lists and answers: whatever the value is, they look into
# nothing.
_PLAIN = known.words(
    "get items keys values pop append extend add update setdefault copy format strip lstrip rstrip"
    " lower upper title split rsplit splitlines join replace startswith endswith encode decode"
    " isoformat strftime date timestamp json text raise_for_status read hexdigest digest hex"
    " total_seconds quantize model_dump model_dump_json dict index count sort sorted"
)
_HOOKS = known.words(
    "event_hooks hooks auth transport mounts headers middlewares trace_configs app client"
)
_LATER = known.words(
    "builtins.map builtins.filter builtins.zip builtins.iter builtins.reversed builtins.enumerate"
)


# ---------------------------------------------------------------- what a tool reaches


def _reach(reading: Reading, function: Function) -> list[Function]:
    """The tool, and the functions of its file that it calls, and that those call."""
    found, new = [function], [function]
    while new:
        for call in calls(new.pop().body):
            for named in (call.func, *call.args):
                helper = reading.module.definition(named)
                if helper is not None and helper not in found:
                    found.append(helper)
                    new.append(helper)
    return found


def _is_visible(reading: Reading, reach: list[Function]) -> bool:
    """Is all that it calls known, so that none of it can look at the effect unseen?"""
    if any(helper.decorator_list for helper in reach[1:]):
        return False  # a decorator of a helper may do anything
    run = (node for function in reach for node in _all(function))
    return all(_is_understood(reading.module, call) for node in run for call in calls(node))


def _all(function: Function) -> Iterator[ast.AST]:
    """What it runs, functions and lambdas inside it included."""
    for node in ast.walk(function):
        if isinstance(node, Function):
            yield from node.body
        elif isinstance(node, ast.Lambda):
            yield node.body


def _is_understood(module: Module, call: ast.Call) -> bool:
    func = call.func
    if module.definition(func) is not None:
        return True
    origin = module.origin(func)
    if not origin:
        return isinstance(func, ast.Attribute) and func.attr in _PLAIN
    is_class = origin.rpartition(".")[2][:1].isupper()
    if origin.startswith("effectonce."):
        # an error, or an answer of a probe
        return is_class and "()" not in origin
    looks = _HOOKS if is_class else _HOOKS - {"headers"}  # those of a client may be made by hand
    hooked = any(given.arg in looks for given in call.keywords)
    return origin.partition(".")[0] in _PACKAGES and not hooked and not _is_hooked(module, func)


def _is_hooked(module: Module, func: ast.expr) -> bool:
    """Is this a method of a client that may have been given a way to look at the effect?"""
    if not isinstance(func, ast.Attribute):
        return False
    client = func.value
    made = module.value(client)
    options = made.keywords if isinstance(made, ast.Call) else []
    if any(each.arg in _HOOKS or each.arg is None for each in options):
        return True
    if not isinstance(client, ast.Name):
        return False
    # session.auth = ..., session.headers.update(...), session.mount(...)
    for node in module.every(ast.Attribute):
        of_client = isinstance(node.value, ast.Name) and node.value.id == client.id
        if of_client and node.attr in ("auth", "hooks", "headers", "mount"):
            return True
    # it is handed to something, such as `protect(client)` or `@guard.tool(clients=[client])`
    handed = (each for call in module.every(ast.Call) for each in given(call))
    return any(client.id in names(each) for each in handed)


def _mentions(reach: list[Function], words: re.Pattern[str]) -> bool:
    return any(words.search(ast.unparse(part)) for function in reach for part in function.body)


# ---------------------------------------------------------------- downstream


def _downstream(reading: Reading, tool: DeclaredTool) -> str:
    """What a guarded tool declares, if it is written there."""
    match tool.given("downstream"):
        case ast.Constant(value=str(name)):
            return name
        case ast.Call(func=ast.Attribute(attr=name) as func) if reading.module.is_ours(func):
            return name
        case _:
            return ""


def _is_alone(tool: DeclaredTool) -> bool:
    """Is the guard its only decorator? Another one may do anything."""
    return len(tool.function.decorator_list) == 1


def _key_unused(reading: Reading) -> Iterator[Hit]:
    for tool in reading.guarded:
        if tool.kind == "read" or _downstream(reading, tool) != "key" or not _is_alone(tool):
            continue
        reach = _reach(reading, tool.function)
        effects = [effect for function in reach for effect in reading.effects(function.body)]
        if effects and not _mentions(reach, _KEY_READ) and _is_visible(reading, reach):
            yield Hit(
                effects[0].call,
                f'{tool.function.name} declares downstream="key" and {effects[0].what} without it:'
                " a repeat after a lost answer is done twice. Send"
                " current_effect().downstream_key, or use protect(client) of"
                " effectonce.http.client.",
            )


_CONNECTION = re.compile("current_effect|connection")
_KEY_READ = re.compile(rf"{known.KEYED.pattern}|\.key\b|protect\(", re.IGNORECASE)


def _no_probe(reading: Reading) -> Iterator[Hit]:
    tools = {tool.function.name for tool in reading.tools.values()}
    probed = [node.value for node in reading.module.every(ast.Attribute) if node.attr == "probe"]
    of = {node.id for node in probed if isinstance(node, ast.Name)}
    others = (n for n in probed if not reading.module.origin(n).endswith("Downstream"))
    elsewhere = any(not isinstance(node, ast.Name) or node.id not in tools for node in others)
    for tool in reading.guarded:
        if tool.declared is None or tool.kind == "read" or _downstream(reading, tool) != "probe":
            continue
        if tool.function.name not in of and not elsewhere:
            yield Hit(
                tool.declared,
                f'{tool.function.name} declares downstream="probe" and has no probe in this file:'
                " after a lost answer nothing can be asked, and it waits for a person. Write one:"
                f" @{tool.function.name}.probe.",
            )


def _no_connection(reading: Reading) -> Iterator[Hit]:
    for tool in reading.guarded:
        if _downstream(reading, tool) != "transaction" or not _is_alone(tool):
            continue
        reach = _reach(reading, tool.function)
        done = [call for function in reach for call in calls(function.body) if _does(reading, call)]
        if done and not _mentions(reach, _CONNECTION) and _is_visible(reading, reach):
            yield Hit(
                done[0],
                f'{tool.function.name} declares downstream="transaction" and does this outside of'
                " it: a crash between this and the record does it again. Use"
                " current_effect().connection.",
            )


def _does(reading: Reading, call: ast.Call) -> bool:
    in_database = _DATABASE.fullmatch(reading.module.origin(call.func))
    return in_database is not None or reading.effect(call) is not None


# ---------------------------------------------------------------- reads, names, results


def _read_with_key(reading: Reading) -> Iterator[Hit]:
    for tool in reading.guarded:
        if tool.kind != "read":
            continue
        for node in own(tool.function.body):
            if what := _needs_a_record(reading.module, node):
                yield Hit(
                    node,
                    f'{tool.function.name} is declared kind="read" and {what}: a read has no'
                    ' record, and every repeat does it again. Declare what it is: kind="write", or'
                    ' "idempotent_write".',
                )
                break


def _needs_a_record(module: Module, node: ast.AST) -> str:
    of_effect = _of_effect(module, node)
    if of_effect in ("downstream_key", "key", "connection"):
        return f"uses current_effect().{of_effect}"
    match node:
        case ast.Call(func=func) if (method := _of_effect(module, func)) in (
            "request_key",
            "key_as",
        ):
            return f"uses current_effect().{method}()"
        case ast.Call(
            func=ast.Attribute(attr="execute" | "executemany"),
            args=[ast.Constant(value=str(sql)), *_],
        ) if _WRITES.match(sql):
            return f"writes to a database ({sql.split()[0].upper()})"
        case ast.Call(func=ast.Attribute(attr="commit"), args=[], keywords=[]):
            return "commits"
        case _:
            return ""


def _of_effect(module: Module, node: ast.AST) -> str:
    """The name, if this is an attribute of `current_effect()`."""
    match node:
        case ast.Attribute(value=ast.Call() as call, attr=attr):
            return attr if module.origin(call.func) == "effectonce.current_effect" else ""
        case _:
            return ""


def _same_name(reading: Reading) -> Iterator[Hit]:
    """In one block: two branches of an `if` are one tool, and two factories may have two guards."""
    seen: dict[tuple[ast.AST, str, str], Function] = {}
    for tool in sorted(reading.guarded, key=lambda each: each.function.lineno):
        above = reading.module.parents.get(tool.function)
        if tool.declared is None or not isinstance(above, ast.Module | Function):
            continue
        named = tool.given("name")
        name = named.value if isinstance(named, ast.Constant) else None
        if named is None:
            name = tool.function.name
        if not isinstance(name, str):
            continue
        guard = ast.unparse(tool.declared.func)
        first = seen.setdefault((above, guard, name), tool.function)
        if first is not tool.function:
            yield Hit(
                tool.declared,
                f"two tools are called {name!r}, this one and that in line {first.lineno}: the name"
                " is part of every key, so a call of one gets the result of the other. Give one of"
                " them another name.",
            )


def _not_there_yet(reading: Reading) -> Iterator[Hit]:
    for tool in reading.guarded:
        for node in own(tool.function.body):
            returned = node.value if isinstance(node, ast.Return) else None
            if returned is not None and (what := _promise(reading.module, tool, returned)):
                yield Hit(
                    node,
                    f"{tool.function.name} returns {what}, and is recorded as done before that is:"
                    " what comes of it is known to no repeat. Return what it gives.",
                )


def _promise(module: Module, tool: DeclaredTool, returned: ast.expr) -> str:
    """What is returned, if it is something that still has to happen."""
    value: ast.AST | None = returned
    # used before: it may be awaited there
    if isinstance(returned, ast.Name) and len(loads(tool.function.body, returned.id)) == 1:
        value = module.value(returned)
    if isinstance(value, ast.GeneratorExp):
        return "a generator"
    if not isinstance(value, ast.Call):
        return ""
    origin = module.origin(value.func)
    if origin in _LATER:
        return f"{origin.removeprefix('builtins.')}(...), which does nothing until it is read"
    if how := starts(module, value):
        return {"a task": "a task", "an executor": "a Future"}.get(how, "")
    if isinstance(module.definition(value.func), ast.AsyncFunctionDef):
        return "a coroutine"
    return ""


def _dropped(reading: Reading) -> Iterator[Hit]:
    for line in reading.module.every(ast.Expr):
        if not isinstance(line.value, ast.Call):
            continue
        called = reading.module.definition(line.value.func)
        tool = reading.tools.get(called) if isinstance(called, ast.AsyncFunctionDef) else None
        if tool is not None and tool.sort in ("guarded", "workflow"):
            what = "tool" if tool.sort == "guarded" else "workflow"
            yield Hit(
                line,
                f"{tool.function.name} is an async {what} and is called here without await:"
                " nothing is run, nothing is recorded, and the code goes on as if it were done."
                " Await it.",
            )


RULES: LintRules = {
    "EO501": _key_unused,
    "EO502": _no_probe,
    "EO503": _no_connection,
    "EO504": _read_with_key,
    "EO505": _same_name,
    "EO506": _not_there_yet,
    "EO507": _dropped,
}
