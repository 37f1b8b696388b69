"""Which functions of a file are tools, what protects them, what they do that cannot be undone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Literal

from effectonce.lint import _known as known
from effectonce.lint._source import (
    Function,
    Module,
    callee,
    calls,
    constants,
    given,
    keyword,
    names,
    own,
)


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

    def given(self, name: str) -> ast.expr | None:
        """What it declares under this name."""
        return None if self.declared is None else keyword(self.declared, name)


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
            origin = self.module.origin(callee(decorator))
            if found := _framework(origin):
                return DeclaredTool(function, "agent", *found)
            engines = (name for pattern, name in known.ENGINES if pattern.fullmatch(origin))
            if name := next(engines, ""):
                return DeclaredTool(function, "engine", name)
        cls = self._tool_class(function)
        for base in [] if cls is None else cls.bases:
            if found := known.TOOL_CLASSES.get(self.module.origin(base)):
                return DeclaredTool(function, "agent", *found)
        return None

    def _tool_class(self, function: Function) -> ast.ClassDef | None:
        """The class, if a method is what makes it a tool."""
        cls = self.module.parents.get(function)
        named = function.name in known.TOOL_METHODS
        return cls if named and isinstance(cls, ast.ClassDef) else None

    def _handed_over(self) -> Iterator[tuple[Function, DeclaredTool]]:
        """Functions made tools by a call: `FunctionTool(refund)`, `Agent(tools=[refund])`."""
        for call in self.module.every(ast.Call):
            origin = self.module.origin(call.func)
            if made := _framework(origin):
                handed = [*call.args[:1], keyword(call, "func"), keyword(call, "fn")]
            elif made := _framework(origin, known.AGENTS):
                lists = [*call.args, keyword(call, "tools")]
                several = (one.elts for one in lists if isinstance(one, ast.List | ast.Tuple))
                handed = [*chain.from_iterable(several)]
            else:
                continue
            for each in handed:
                function = None if each is None else self.module.definition(each)
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
        if not what:
            return None
        return EffectCall(call, what, self._keyed(call), repeatable=False, http=False)

    def _request(self, call: ast.Call, verb: str, args: list[ast.expr]) -> EffectCall | None:
        method = verb.upper()
        if verb in ("request", "urlopen"):
            named = args[0] if args else keyword(call, "method")
            method = str(_constant(named) or "").upper()
            args = args[1:]
        if method in ("", *known.SAFE_METHODS) or (method == "POST" and self._asks(call, args)):
            return None
        repeatable = method in known.REPEATABLE_METHODS
        return EffectCall(call, f"sends a {method}", self._keyed(call), repeatable, http=True)

    def _asks(self, call: ast.Call, args: list[ast.expr]) -> bool:
        """Does a POST only ask, as far as its address or its function tells?"""
        url = args[0] if args else keyword(call, "url")
        function = self.module.function_around(call)
        name = "" if function is None else self.name_of(function)
        named = [part.lower() for part in known.NAME_PARTS.findall(name)]
        if named and (named[0] in known.ASKING_FIRST or not known.ASKING.isdisjoint(named)):
            return True
        return known.ASKING_URL.search(self.text(url)) is not None

    def name_of(self, function: Function) -> str:
        """As people call it: a tool that is a class has the name of the class."""
        cls = self._tool_class(function)
        return function.name if cls is None else cls.name

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
                    words += map(str, constants(meant))
            elif isinstance(part, ast.Constant):
                words.append(str(part.value))
        return " ".join(words)

    def _keyed(self, call: ast.Call) -> bool:
        """Does it carry a key, in its arguments or in what they were assigned in this file?"""
        arguments = [each.arg or "" for each in call.keywords]
        values = (self.module.value(node) for each in given(call) for node in ast.walk(each))
        texts = (ast.unparse(value) for value in values if isinstance(value, ast.expr))
        if any(known.KEYED.search(text) for text in (*arguments, *texts)):
            return True
        function = self.module.function_around(call)
        mentioned = set[str]().union(*map(names, given(call)))
        return function is not None and any(
            isinstance(node.value, ast.Name)
            and node.value.id in mentioned
            and known.KEYED.search(ast.unparse(node.slice))
            for node in own(function.body)
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
        )  # headers["Idempotency-Key"] = ...


def _framework(origin: str, table: known.Frameworks = known.TOOLS) -> tuple[str, str] | None:
    rows = (row for row in table if origin and row[0].fullmatch(origin))
    return next(((name, adapter) for _, name, adapter in rows), None)


def _constant(node: ast.AST | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None
