"""What all recipes do with what they find: one rule for what an answer proves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import UTC, datetime
from functools import wraps
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from effectonce._core.ops import CannotTell, Found, NotFound
from effectonce._log import LOG
from effectonce.effect import Effect, current_effect
from effectonce.errors import ContractViolation

T = TypeVar("T")
ProbeAnswer: TypeAlias = Found | NotFound | CannotTell
Probe: TypeAlias = Callable[..., ProbeAnswer]
MARK = "effectonce"  # the name of the mark, where it has one
SKEW_S = 120.0  # the provider's clock may be behind the store's
LOOKED_AT_MAX = 10_000  # a list that is longer proves nothing


class Unclear(Exception):
    """What was found does not say whether the effect happened; this does, to a person."""


class TooMany(Exception):
    """The list is longer than a probe looks through."""


def asking(
    provider: str,
    search: Callable[..., Iterable[T]],
    result: Callable[[T], Any],
    proof_after_s: float | None,
    *,
    strict: bool = False,
) -> Probe:
    """A probe for one match. *strict*: the provider's page says reads show all answered writes."""
    after_s = 0.0 if strict and proof_after_s is None else proof_after_s
    if after_s is None:
        after_s = _published_proof_s(provider)

    def ask(*args: Any, **kwargs: Any) -> ProbeAnswer:
        effect = current_effect()
        try:
            found = [result(match) for match in islice(search(*args, **kwargs), 2)]
        except Unclear as why:
            return CannotTell(f"{provider}: {why}")
        except Exception as error:
            # whatever a client raises, it did not answer; what we say of the call is for good
            if effect.unsent and isinstance(error, ContractViolation):
                raise
            LOG.warning("%s could not be asked about %s: %r", provider, effect.ref, error)
            return CannotTell(f"{provider} could not be asked: {type(error).__name__}")
        return _answer(provider, found, effect, after_s)

    return ask


def _answer(provider: str, found: list[Any], effect: Effect, after_s: float | None) -> ProbeAnswer:
    if len(found) > 1:
        return CannotTell(f"{provider} has more than one that fits: look which it is")
    if found:
        return Found(found[0])
    if effect.unsent:
        return NotFound()
    if after_s is None:
        return CannotTell(f"{provider} does not show it, which is no proof that it did not happen")
    if effect.sent_at == 0.0 or effect.in_doubt_s < after_s:
        return CannotTell(f"{provider} does not show it yet, which is proof after {after_s:g} s")
    return NotFound()


def _published_proof_s(provider: str) -> float | None:
    """After how long the provider's own page takes "not found" for proof; None: it does not."""
    from effectonce.providers._read import provider as named  # noqa: PLC0415  # with its file
    from effectonce.providers._read import providers  # noqa: PLC0415

    probe = named(provider).probe if provider in providers() else None
    return None if probe is None or not probe.not_found_is_proof else float(probe.delay_s or 0)


def mark() -> str:
    """What the tool leaves at the provider, and the probe looks for: the effect's own key."""
    return current_effect().downstream_key


def keys_sent(own: str, path: str) -> tuple[str, str]:
    """The key that the tool sends itself, and that of a protected client's POST to *path*."""
    return own, current_effect().request_key("POST", path)


def since_s() -> float:
    """The time of the first send, and a little before. Raises if it is not known."""
    sent_at = current_effect().sent_at
    if sent_at == 0.0:
        after_a_send("it looks from the first send on")
        raise ContractViolation("the store does not say when it was sent")
    return sent_at - SKEW_S


def after_a_send(why: str) -> None:
    """For a probe that knows too little to be asked before the first send."""
    if current_effect().unsent:
        raise ContractViolation(f"this probe cannot be asked before the first send: {why}")


def since() -> datetime:
    return datetime.fromtimestamp(since_s(), UTC)


def bounded(items: Iterable[T]) -> Iterator[T]:
    """All of a list, unless it does not end."""
    for number, item in enumerate(items):
        if number >= LOOKED_AT_MAX:
            raise TooMany(f"more than {LOOKED_AT_MAX:,} entries")
        yield item


def get_json(client: Any, path: str, **params: Any) -> Any:
    """Ask a client of the httpx or requests kind. A refusal is an error."""
    answer = client.get(path, params=params)
    answer.raise_for_status()
    return answer.json()


def in_thread(probe: Probe) -> Callable[..., Coroutine[Any, Any, ProbeAnswer]]:
    """The same for an async tool: it is asked in a thread, where its client may block."""

    @wraps(probe)
    async def ask(*args: Any, **kwargs: Any) -> ProbeAnswer:
        return await asyncio.to_thread(probe, *args, **kwargs)

    return ask
