"""One file of Python, and what its names mean.

Nothing is imported. A name means what the file says: an import, or the one value that it is
assigned. `origin` writes that as a dotted name, with `()` for "what that returns": after `import
httpx as h` and `client = h.Client()`, the origin of `client.post` is `httpx.Client().post`. A
name that is bound twice, or by something else (a loop, a parameter without a type), means
nothing: then no rule speaks about it.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

N = TypeVar("N", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_OWN_SCOPE = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.ListComp, ast.SetComp,
    ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
_BINDS = (
    ast.Name, ast.Assign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef,
    ast.ClassDef, ast.AnnAssign, ast.NamedExpr, ast.withitem, ast.ExceptHandler, ast.MatchAs,
    ast.MatchStar, ast.Global, ast.Nonlocal,
)  # fmt: skip
_NOTHING: frozenset[ast.AST] = frozenset()
_BUILTINS = frozenset(dir(builtins))
_BOTO3 = ("boto3.client", "boto3.resource")
_CONTAINERS = ("typing.Annotated", "typing.Optional", "typing_extensions.Annotated")


@dataclass(slots=True)
class SourceScope:
    """Names that are bound in one function, class or module."""

    node: ast.AST
    outer: SourceScope | None
    # an import, a value, or something else
    names: dict[str, list[str | ast.AST | None]] = field(default_factory=dict)

    def bind(self, name: str, meaning: str | ast.AST | None) -> None:
        self.names.setdefault(name, []).append(meaning)


class Instance(ast.AST):
    """Stands for a value of a class: a parameter with a type, or what `with` gives."""

    def __init__(self, made: ast.expr, *, called: bool) -> None:
        super().__init__()
        self.made, self.called = made, called


class Module:
    """A parsed file."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents: dict[ast.AST, ast.AST] = {}
        self._nodes: dict[type[ast.AST], list[ast.AST]] = {}
        self.modules: set[str] = set()  # that it imports, anywhere
        self.stars = False
        self._scopes: dict[ast.AST, SourceScope] = {}
        self._attributes: dict[ast.ClassDef, dict[str, list[ast.AST | None]]] = {}
        self._origins: dict[ast.AST, str] = {}
        self._visit_all()

    # ---------------------------------------------------------------- reading it once

    def _visit_all(self) -> None:
        root = SourceScope(self.tree, None)
        self._scopes[self.tree] = root
        stack: list[tuple[ast.AST, SourceScope]] = [(self.tree, root)]
        while stack:
            node, scope = stack.pop()
            self._nodes.setdefault(type(node), []).append(node)
            inner, outside = scope, _NOTHING
            if isinstance(node, _BINDS):
                self._bind(node, scope)
            if isinstance(node, _OWN_SCOPE):
                inner = self._scopes[node] = SourceScope(node, scope)
                self._bind_parameters(node, inner)
                outside = _evaluated_outside(node)
            for child in reversed(children(node)):
                self.parents[child] = node
                if child in outside:
                    self._scopes.setdefault(child, scope)
                    stack.append((child, scope))
                else:
                    stack.append((child, inner))

    def _bind(self, node: ast.AST, scope: SourceScope) -> None:
        match node:
            case ast.Name(ctx=ast.Load()):
                pass
            case ast.Import():
                for alias in node.names:
                    self.modules.add(alias.name)
                    top = alias.name.partition(".")[0]
                    scope.bind(alias.asname or top, alias.name if alias.asname else top)
            case ast.ImportFrom():
                module = "." * node.level + (node.module or "")
                self.modules.add(module)
                for alias in node.names:
                    self.stars |= alias.name == "*"
                    joined = module + "." * (not module.endswith(".")) + alias.name
                    self.modules.add(joined)
                    scope.bind(alias.asname or alias.name, joined)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                scope.bind(node.name, node)
            case ast.Assign(targets=[target], value=value):
                self._bind_target(target, value, scope)
            case ast.AnnAssign(target=target, value=value, annotation=annotation):
                declared = Instance(annotation, called=False)
                self._bind_target(target, declared if value is None else value, scope)
            case ast.NamedExpr(target=target, value=value):
                scope.bind(target.id, value)
            case ast.withitem(context_expr=value, optional_vars=ast.Name(id=name)):
                scope.bind(name, Instance(value, called=True))
            case ast.Name() if not self._is_bound_elsewhere(node):
                scope.bind(node.id, None)
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                scope.bind(name, None)
            case ast.Global() | ast.Nonlocal():
                for name in node.names:
                    scope.bind(name, None)
            case _:
                pass

    def _bind_target(self, target: ast.expr, value: ast.AST, scope: SourceScope) -> None:
        match target:
            case ast.Name(id=name):
                scope.bind(name, value)
                cls = scope.node
                if isinstance(cls, ast.ClassDef):
                    self._attributes.setdefault(cls, {}).setdefault(name, []).append(value)
            case ast.Attribute(value=ast.Name(id=me), attr=attr) if (
                found := self._class_of(me, scope)
            ) is not None:
                self._attributes.setdefault(found, {}).setdefault(attr, []).append(value)
            case _:
                pass

    def _is_bound_elsewhere(self, node: ast.Name) -> bool:
        """Is it the target of something that `_bind` reads as a whole?"""
        match self.parents.get(node):
            case ast.Assign(targets=[target]) | ast.withitem(optional_vars=target):
                return target is node
            case ast.AnnAssign(target=target) | ast.NamedExpr(target=target):
                return target is node
            case _:
                return False

    def _bind_parameters(self, node: ast.AST, scope: SourceScope) -> None:
        if not isinstance(node, Function | ast.Lambda):
            return
        for arg in parameters(node):
            typed = arg.annotation
            scope.bind(arg.arg, None if typed is None else Instance(typed, called=False))

    def _class_of(self, me: str, scope: SourceScope) -> ast.ClassDef | None:
        """The class whose method this is, if *me* is its first parameter."""
        around: SourceScope | None = scope
        while around is not None and not isinstance(around.node, Function):
            around = around.outer
        if around is None or around.outer is None:
            return None
        cls = around.outer.node
        first = next(parameters(around.node), None) if isinstance(around.node, Function) else None
        mine = first is not None and first.arg == me
        return cls if mine and isinstance(cls, ast.ClassDef) else None

    # ---------------------------------------------------------------- asking it

    @property
    def functions(self) -> list[Function]:
        return [*self.every(ast.FunctionDef), *self.every(ast.AsyncFunctionDef)]

    def every(self, kind: type[N]) -> list[N]:
        """All nodes of a kind, in order."""
        # it is what they are filed under
        return self._nodes.get(kind, [])  # type: ignore[return-value]

    def scope_of(self, node: ast.AST) -> SourceScope:
        """Where the names in *node* are looked up."""
        at = node
        while at not in self._scopes or (at is node and isinstance(at, _OWN_SCOPE)):
            at = self.parents[at]
        return self._scopes[at]

    def is_ours(self, node: ast.AST) -> bool:
        """Is it of effectonce?"""
        return self.origin(node).startswith("effectonce.")

    def origin(self, node: ast.AST | None) -> str:
        """What *node* is, as a dotted name; "" if the file does not tell."""
        if node is None:
            return ""
        if node not in self._origins:
            self._origins[node] = ""  # of what is made of itself
            self._origins[node] = self._origin(node)
        return self._origins[node]

    def _origin(self, node: ast.AST) -> str:
        match node:
            case ast.Name():
                return self._meant(node)
            case ast.Attribute(value=value, attr=attr):
                if base := self.origin(value):
                    return f"{base}.{attr}"
                return self.origin(self._attribute(node))
            case ast.Call(func=func, args=args):
                base = self.origin(func)
                match args:
                    case [ast.Constant(value=str(service)), *_] if base in _BOTO3:
                        return f"boto3.{service}()"
                    case _:
                        return f"{base}()" if base else ""
            case ast.Await(value=value):
                return self.origin(value)
            case Instance(made=made, called=called):
                base = self.origin(made) if called else self._annotated(made)
                return base if called or not base else f"{base}()"
            case _:
                return ""

    def _meant(self, node: ast.Name) -> str:
        meanings = self.meanings(node)
        if meanings is None:
            return f"builtins.{node.id}" if node.id in _BUILTINS and not self.stars else ""
        if all(isinstance(meaning, str) for meaning in meanings):
            return str(meanings[0])
        only = meanings[0] if len(meanings) == 1 else None
        return self.origin(only) if isinstance(only, ast.AST) else ""

    def meanings(self, name: ast.Name) -> list[str | ast.AST | None] | None:
        """All that a name is bound to, in the scope that counts; None if it is bound nowhere."""
        scope: SourceScope | None = self.scope_of(name)
        first = True
        while scope is not None:
            visible = first or not isinstance(scope.node, ast.ClassDef)
            if visible and name.id in scope.names:
                return scope.names[name.id]
            scope, first = scope.outer, False
        return None

    def value(self, node: ast.AST | None) -> ast.AST | None:
        """What *node*, a name or an attribute of `self`, is assigned, if once; otherwise itself."""
        for _ in range(8):  # an end, where names are made of each other
            if isinstance(node, ast.Name):
                meant = self._only_meaning(node)
            else:
                meant = self._attribute(node) if isinstance(node, ast.Attribute) else None
            if not isinstance(meant, ast.expr):
                return node
            node = meant
        return node

    def _only_meaning(self, name: ast.Name) -> str | ast.AST | None:
        meanings = self.meanings(name) or []
        return meanings[0] if len(meanings) == 1 else None

    def definition(self, node: ast.AST) -> Function | None:
        """The function of this file that a name calls, or the class's method for `self.name`."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            cls = self._class_of(node.value.id, self.scope_of(node))
            body = [] if cls is None else cls.body
            methods = [each for each in body if getattr(each, "name", "") == node.attr]
            only = methods[0] if len(methods) == 1 else None
            return only if isinstance(only, Function) else None
        meant = self._only_meaning(node) if isinstance(node, ast.Name) else None
        return meant if isinstance(meant, Function) else None

    def _attribute(self, node: ast.Attribute) -> ast.AST | None:
        """What `self.name` is assigned, if that happens once in its class."""
        if not isinstance(node.value, ast.Name):
            return None
        cls = self._class_of(node.value.id, self.scope_of(node))
        values = [] if cls is None else self._attributes.get(cls, {}).get(node.attr, [])
        return values[0] if len(values) == 1 else None

    def _annotated(self, annotation: ast.expr) -> str:
        match annotation:
            case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
                return self.origin(left)
            case ast.Subscript(value=value, slice=ast.Tuple(elts=[first, *_]) | first) if (
                self.origin(value) in _CONTAINERS
            ):
                return self.origin(first)
            case _:
                return self.origin(annotation)

    def function_around(self, node: ast.AST) -> Function | None:
        """The innermost `def` that runs *node*."""
        at: ast.AST | None = node
        while at is not None:
            above = self.parents.get(at)
            if isinstance(above, Function) and at in above.body:
                return above
            at = above
        return None


def parameters(function: Function | ast.Lambda) -> Iterator[ast.arg]:
    """All of them, in order."""
    args = function.args
    yield from (*args.posonlyargs, *args.args)
    if args.vararg is not None:
        yield args.vararg
    yield from args.kwonlyargs
    if args.kwarg is not None:
        yield args.kwarg


def own(nodes: ast.AST | list[ast.stmt]) -> Iterator[ast.AST]:
    """What is run by running these, in order: nested functions and classes are not."""
    stack: list[ast.AST] = list(reversed(nodes)) if isinstance(nodes, list) else [nodes]
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            stack.extend(reversed(children(node)))


def calls(nodes: ast.AST | list[ast.stmt]) -> Iterator[ast.Call]:
    """The calls among them."""
    return (node for node in own(nodes) if isinstance(node, ast.Call))


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """What a call gives for a parameter by its name."""
    return next((given.value for given in call.keywords if given.arg == name), None)


def argument(call: ast.Call, place: int, name: str) -> ast.expr | None:
    """What a call gives for a parameter, by its place or its name."""
    return call.args[place] if len(call.args) > place else keyword(call, name)


def given(call: ast.Call) -> list[ast.expr]:
    """All that a call gives."""
    return [*call.args, *(each.value for each in call.keywords)]


def callee(node: ast.AST) -> ast.AST:
    """What a decorator calls, or is."""
    return node.func if isinstance(node, ast.Call) else node


def called(call: ast.Call) -> str:
    """The last name of what is called."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def caught(handler: ast.ExceptHandler) -> list[ast.expr]:
    """The errors that a handler names; none, if it takes all."""
    return [] if handler.type is None else getattr(handler.type, "elts", [handler.type])


def names(node: ast.AST) -> set[str]:
    """The names in it."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def loads(nodes: ast.AST | list[ast.stmt], *of: str) -> list[ast.Name]:
    """Where these names are read."""
    named = (node for node in own(nodes) if isinstance(node, ast.Name) and node.id in of)
    return [node for node in named if isinstance(node.ctx, ast.Load)]


def constants(node: ast.AST) -> set[object]:
    """The values that are written in it."""
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}


def children(node: ast.AST) -> list[ast.AST]:
    """A node's parts, in order; without `Load` and `Store`: its place says the same."""
    found: list[ast.AST] = []
    for name in node._fields:
        part = getattr(node, name, None)
        if isinstance(part, list):
            found.extend(each for each in part if isinstance(each, ast.AST))
        elif isinstance(part, ast.AST) and not isinstance(part, ast.expr_context):
            found.append(part)
    return found


def _evaluated_outside(node: ast.AST) -> frozenset[ast.AST]:
    """The parts of a definition that are looked up where it stands, not inside it."""
    if isinstance(node, ast.ClassDef):
        return frozenset((*node.decorator_list, *node.bases, *node.keywords))
    return frozenset(node.decorator_list) if isinstance(node, Function) else _NOTHING
