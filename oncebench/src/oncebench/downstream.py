"""Does a service honour keys, as you rely on? Ask its sandbox, instead of its documentation.

    found = check_downstream("https://sandbox.example/refunds", body={"amount": 1})
    assert found.honours_keys and found.notices_mismatch

Each check sends real requests: use a sandbox.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

FORGETTING_IS_CHECKED_UP_TO_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Downstream:
    """What a service was seen to do."""

    honours_keys: bool  # the same key and body: the same answer, no second effect
    notices_mismatch: bool  # the same key and another body: refused
    forgets_within_window: bool | None  # True: it forgot too early. None: the window was too long
    answers: tuple[tuple[int, Any], ...]  # what it said, in order


def check_downstream(
    url: str,
    *,
    body: Mapping[str, Any],
    key_header: str = "Idempotency-Key",
    headers: Mapping[str, str] | None = None,
    window_s: float | None = None,
    changed: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    same: Callable[[Any, Any], bool] | None = None,
) -> Downstream:
    """Send the same request twice under one key, then another one under it, then, at the end of
    the window, the first once more. *changed* makes another body; *same* says whether two answers
    are of one effect (equal answers, if not given).
    """
    key = str(uuid.uuid4())
    alike = same or (lambda first, second: first == second)
    other = changed or _changed
    sent = {"content-type": "application/json", key_header: key, **(headers or {})}
    began = time.monotonic()
    first, again = _post(url, body, sent), _post(url, body, sent)
    mismatch = _post(url, other(dict(body)), sent)
    answers = [first, again, mismatch]
    forgets: bool | None = None
    if window_s is not None and window_s <= FORGETTING_IS_CHECKED_UP_TO_S:
        left_s = window_s * 0.9 - (time.monotonic() - began)
        time.sleep(max(0.0, left_s))
        answers.append(_post(url, body, sent))
        forgets = not alike(first[1], answers[-1][1])
    return Downstream(
        honours_keys=first[0] < 300 and alike(first[1], again[1]),
        notices_mismatch=400 <= mismatch[0] < 500,
        forgets_within_window=forgets,
        answers=tuple(answers),
    )


def _changed(body: dict[str, Any]) -> dict[str, Any]:
    """Another amount, or another something: the first number plus one, else a further field."""
    for name, value in body.items():
        if isinstance(value, int) and not isinstance(value, bool):
            return {**body, name: value + 1}
    return {**body, "oncebench": "another body under the same key"}


def _post(url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[int, Any]:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r} is no HTTP URL")
    request = urllib.request.Request(url, json.dumps(body).encode(), dict(headers))  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310
            return response.status, _parsed(response.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, _parsed(error.read())


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode("utf-8", "replace")
