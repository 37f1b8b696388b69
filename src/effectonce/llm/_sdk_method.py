"""What is known of an SDK's method: its name, the type of its answer, and how it sends once."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from effectonce._core.canonical import canonical
from effectonce.errors import ContractViolation
from effectonce.llm._answers import betas
from effectonce.retries.clients import without_retries

R = TypeVar("R")


def inmost(create: Callable[..., Any]) -> Callable[..., Any]:
    """The SDKs wrap their methods, and the wrapper of an `async def` is none."""
    inmost: Callable[..., Any] = inspect.unwrap(getattr(create, "__func__", create))
    return inmost


def method_name(create: Callable[..., Any]) -> str:
    """`anthropic.messages.create`: where the method is, without what its package makes of it."""
    function = inmost(getattr(create, "func", create))
    module, called = function.__module__.split("."), getattr(function, "__qualname__", "<lambda>")
    if "<lambda>" in called:
        raise ContractViolation(
            "a lambda has no name that could be part of a key: once_llm(guard, ..., name='...')"
        )
    if "resources" not in module:
        return f"{function.__module__}.{called}"
    pairs = zip(module, ["", *module], strict=False)
    path = [part for part, before in pairs if part not in (before, "resources")]
    return ".".join([*path, function.__name__])


def one_request_each(create: Callable[..., R]) -> tuple[Callable[..., R], str]:
    """The method of a client without retries, and where it asks: elsewhere is another question."""
    resource: Any = getattr(create, "__self__", None)
    client = getattr(resource, "_client", None)
    if client is None or not hasattr(client, "max_retries"):
        return create, ""
    try:
        once = without_retries(client)
    except TypeError:  # it sends through something that is not known
        once = client.with_options(max_retries=0)
    default = dict(getattr(client, "default_query", None) or {})
    query = {name: str(value) for name, value in default.items()}
    always = betas(getattr(client, "default_headers", None)), query  # sent with every question
    at = f"{client.base_url} {canonical(always).decode()}" if any(always) else str(client.base_url)
    return getattr(type(resource)(once), create.__name__), at


def declared_answer(create: Callable[..., Any]) -> type | None:
    """The model that it says it returns, streams aside."""
    try:
        hint = typing.get_type_hints(inmost(create)).get("return")
    except (NameError, TypeError):
        return None
    classes = (each for each in typing.get_args(hint) or (hint,) if isinstance(each, type))
    return next((each for each in classes if hasattr(each, "model_validate")), None)
