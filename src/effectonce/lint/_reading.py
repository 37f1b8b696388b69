"""Which functions of a file are tools, what protects them, what they do that cannot be undone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from effectonce.lint import _known as known
from effectonce.lint._source import Function, Module, calls, keyword, own


@dataclass(frozen=True, slots=True)
class EffectCall:
    """A call that does something out there."""

    call: ast.Call
    what: str
    keyed: bool  # it is sent with a key
    repeatable: bool  # a second one changes nothing more
    http: bool  # a request of which only the method is known


@dataclass(frozen=True, slots=True)
class DeclaredTool:
    """A function that another caller may call again."""

    function: Function
    sort: Literal["guarded", "workflow", "agent", "engine"]
    name: str = ""  # as people call it: "tool of LangChain"
    adapter: str = ""  # the room of effectonce.integrations that protects it elsewhere
    kind: str = ""  # of a guarded one, if it is written there
    declared: ast.Call | None = None  # and all that it declares


class Reading:
    """A file, its tools and its effects."""

    def __init__(self, module: Module) -> None:
        self.module = module

    @cached_property
    def tools(self) -> dict[Function, DeclaredTool]:
        """Each function counts once; a guarded one is guarded, whatever else it is."""
        handed = dict(self._handed_over())
        found = {}
        for function in self.module.functions:
            tool = self._guarded(function) or self._of_framework(function) or handed.get(function)
            if tool is not None:
                found[function] = tool
        return found

    @cached_property
    def guarded(self) -> list[DeclaredTool]:
        return [tool for tool in self.tools.values() if tool.sort == "guarded"]

    @property
    def recorded(self) -> list[DeclaredTool]:
        """Those recorded as one effect each: guarded, or by an adapter if any file uses it."""
        return [tool for tool in self.tools.values() if tool.sort == "guarded" or tool.adapter]

    def is_guard(self, node: ast.AST) -> bool:
        origin = self.module.origin(node)
        if origin:
            return known.GUARD.fullmatch(origin) is not None
        return isinstance(node, ast.Name) and node.id == "guard"

    def _guarded(self, function: Function) -> DeclaredTool | None:
        for decorator in function.decorator_list:
            match decorator:
                case ast.Call(func=ast.Attribute(value=guard, attr="tool") as func) if (
                    kind := keyword(decorator, "kind")
                ) is not None and not _framework(self.module.origin(func)):
                    name = str(_constant(kind) or getattr(kind, "attr", "")).lower()
                    return DeclaredTool(function, "guarded", kind=name, declared=decorator)
                case (
                    ast.Call(func=ast.Attribute(value=guard, attr="workflow"))
                    | ast.Attribute(value=guard, attr="workflow")
                ):
                    if self.is_guard(guard):
                        return DeclaredTool(function, "workflow")
                case _:
                    pass
        return None

    def _of_framework(self, function: Function) -> DeclaredTool | None:
        for decorator in function.decorator_list:
            origin = self.module.origin(
                decorator.func if isinstance(decorator, ast.Call) else decorator
            )
            if found := _framework(origin):
                return DeclaredTool(function, "agent", *found)
            if name := next(
                (name for pattern, name in known.ENGINES if pattern.fullmatch(origin)), ""
            ):
                return DeclaredTool(function, "engine", name)
        return self._method_of_tool_class(function)

    def _method_of_tool_class(self, function: Function) -> DeclaredTool | None:
        cls = self.module.parents.get(function)
        if not isinstance(cls, ast.ClassDef) or function.name not in known.TOOL_METHODS:
            return None
        for base in cls.bases:
            if found := known.TOOL_CLASSES.get(self.module.origin(base)):
                return DeclaredTool(function, "agent", *found)
        return None

    def _handed_over(self) -> Iterator[tuple[Function, DeclaredTool]]:
        """Functions that are made tools by a call: `FunctionTool(refund)`, `AssistantAgent(...,
        tools=[refund])`.
        """
        for call in self.module.every(ast.Call):
            origin = self.module.origin(call.func)
            if made := _framework(origin):
                given = [
                    *call.args[:1],
                    *(
                        value
                        for name in ("func", "fn")
                        if (value := keyword(call, name)) is not None
                    ),
                ]
            elif made := _framework(origin, known.AGENTS):
                lists = [*call.args, keyword(call, "tools")]
                given = [
                    each
                    for one in lists
                    if isinstance(one, ast.List | ast.Tuple)
                    for each in one.elts
                ]
            else:
                continue
            for each in given:
                function = self.module.definition(each)
                if function is not None:
                    yield function, DeclaredTool(function, "agent", *made)

    # ---------------------------------------------------------------- effects

    def effects(self, nodes: ast.AST | list[ast.stmt]) -> Iterator[EffectCall]:
        """Those of the calls that these run."""
        for call in calls(nodes):
            effect = self.effect(call)
            if effect is not None:
                yield effect

    def effect(self, call: ast.Call) -> EffectCall | None:
        """What a call does, if it is known to be an effect."""
        func, args = call.func, call.args
        if self.module.origin(func) in known.IN_A_THREAD and args:
            func, args = args[0], args[1:]
        origin = self.module.origin(func)
        last = origin.rpartition(".")[2]
        if last not in known.VERBS and not known.VERB_LIKE.fullmatch(last):
            return None
        if known.HTTP.fullmatch(origin):
            return self._request(call, last, args)
        what = next((what for pattern, what in known.EFFECTS if pattern.fullmatch(origin)), "")
        return (
            EffectCall(call, what, self._keyed(call), repeatable=False, http=False)
            if what
            else None
        )

    def _request(self, call: ast.Call, verb: str, args: list[ast.expr]) -> EffectCall | None:
        method = verb.upper()
        if verb in ("request", "urlopen"):
            given = args[0] if args else keyword(call, "method")
            method = str(_constant(given) or "").upper()
            args = args[1:]
            if not method:
                return None
        if method in known.SAFE_METHODS or self._asks(call, args, method):
            return None
        return EffectCall(
            call,
            f"sends a {method}",
            self._keyed(call),
            repeatable=method in known.REPEATABLE_METHODS,
            http=True,
        )

    def _asks(self, call: ast.Call, args: list[ast.expr], method: str) -> bool:
        """Is it a POST that only asks, as far as its address or its function tells?"""
        if method != "POST":
            return False
        url = args[0] if args else keyword(call, "url")
        function = self.module.function_around(call)
        named = (
            []
            if function is None
            else [part.lower() for part in known.NAME_PARTS.findall(self.name_of(function))]
        )
        if named and (named[0] in known.ASKING_FIRST or not known.ASKING.isdisjoint(named)):
            return True
        return known.ASKING_URL.search(self.text(url)) is not None

    def name_of(self, function: Function) -> str:
        """As people call it: a tool that is a class has the name of the class."""
        cls = self.module.parents.get(function)
        return (
            cls.name
            if isinstance(cls, ast.ClassDef) and function.name in known.TOOL_METHODS
            else function.name
        )

    def text(self, node: ast.AST | None) -> str:
        """What an expression says, and what its names are assigned: to look at its words."""
        if node is None:
            return ""
        words = []
        for part in ast.walk(node):
            if isinstance(part, ast.Name | ast.Attribute):
                words.append(part.id if isinstance(part, ast.Name) else part.attr)
                meant = self.module.value(part)
                if isinstance(meant, ast.Constant | ast.JoinedStr | ast.BinOp):
                    words.extend(
                        str(each.value)
                        for each in ast.walk(meant)
                        if isinstance(each, ast.Constant)
                    )
            elif isinstance(part, ast.Constant):
                words.append(str(part.value))
        return " ".join(words)

    def _keyed(self, call: ast.Call) -> bool:
        """Does it carry a key, in its arguments or in what they were assigned in this file?"""
        given = [*call.args, *(each.value for each in call.keywords)]
        names = [each.arg or "" for each in call.keywords]
        values = [self.module.value(node) or node for each in given for node in ast.walk(each)]
        texts = (*names, *(ast.unparse(value) for value in values if isinstance(value, ast.expr)))
        if any(known.KEYED.search(text) for text in texts):
            return True
        function = self.module.function_around(call)
        mentioned = {
            node.id for each in given for node in ast.walk(each) if isinstance(node, ast.Name)
        }
        return function is not None and any(
            isinstance(node.value, ast.Name)
            and node.value.id in mentioned
            and known.KEYED.search(ast.unparse(node.slice))
            for node in own(function.body)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        )  # headers["Idempotency-Key"] = ...


def _framework(origin: str, table: known.Frameworks = known.TOOLS) -> tuple[str, str] | None:
    return (
        next(
            ((name, adapter) for pattern, name, adapter in table if pattern.fullmatch(origin)), None
        )
        if origin
        else None
    )


def _constant(node: ast.AST | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None
