"""The reference of every public name, from its docstring: one page to a module."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import effectonce

SOURCE = Path(effectonce.__file__).parent
# Their base classes are those of a framework, which is not installed here: howto/agents.md.
ELSEWHERE = ("integrations",)


def public_modules() -> list[str]:
    """Modules without an underscore that list their names, `effectonce` first."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        *parts, name = path.relative_to(SOURCE.parent).with_suffix("").parts
        parts = parts if name == "__init__" else [*parts, name]
        hidden = any(part.startswith("_") for part in parts)
        if not hidden and "__all__ =" in path.read_text() and parts[1:2] != list(ELSEWHERE):
            found.append(".".join(parts))
    return ["effectonce", *found]


def public_names() -> dict[str, list[str]]:
    """The names of each module; what a package lists is not listed again inside of it."""
    names: dict[str, list[str]] = {}
    listed: dict[str, list[object]] = {}
    for module in public_modules():
        home = importlib.import_module(module)
        things = {name: getattr(home, name) for name in home.__all__}
        above = [
            each for outer, its in listed.items() if module.startswith(f"{outer}.") for each in its
        ]
        listed[module] = list(things.values())
        shown = [
            name
            for name, thing in things.items()
            if not isinstance(thing, ModuleType) and not any(thing is each for each in above)
        ]
        if shown:
            names[module] = shown
    return names


def api_page(module: str, names: list[str]) -> str:
    """A page in reStructuredText, which is what autodoc writes."""
    return "\n".join(_lines(module, names)) + "\n"


def _lines(module: str, names: list[str]) -> Iterator[str]:
    home = importlib.import_module(module)
    title = f"Python: {module}"
    yield from (title, "=" * len(title), "")
    yield from ((inspect.getdoc(home) or "").partition("\n\n")[0], "")
    for name in names:
        thing = getattr(home, name)
        match thing:
            case type() if issubclass(thing, BaseException):
                yield from (f".. autoexception:: {module}.{name}", "   :members:", "")
            case type():
                yield from (f".. autoclass:: {module}.{name}", "   :members:", "")
            case _ if inspect.isroutine(thing):
                yield from (f".. autofunction:: {module}.{name}", "")
            case _:
                # its docstring would be that of dict or tuple
                yield from (
                    f".. py:data:: {module}.{name}",
                    f"   :type: {type(thing).__name__}",
                    "",
                )
