"""Variables of the environment that begin with our name. One that nothing reads is a misspelt
one, and is reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from effectonce._log import LOG

PREFIX = "EFFECTONCE_"
SETTINGS = (
    "store",
    "store_file",
    "app",
    "keys_file",
    "tenant",
    "by",
    "output",
    "color",
    "limit",
    "reconcile",
    "counters",
    "no_input",
)
KNOWN = frozenset(
    PREFIX + name
    for name in (
        "CONFIG",
        "CONVERSATION",
        "KEYS",
        "PLAINTEXT_UNTIL",
        "SPOOL",
        *map(str.upper, SETTINGS),
    )
)


def report(environ: Mapping[str, str]) -> None:
    """Log what nothing reads, each once."""
    for name in environ:
        if name.startswith(PREFIX) and name not in KNOWN:
            _report(name)


@lru_cache(maxsize=64)
def _report(name: str) -> None:
    import difflib  # noqa: PLC0415  # only where a name was misspelt

    near = difflib.get_close_matches(
        name.removeprefix(PREFIX), [known.removeprefix(PREFIX) for known in KNOWN], 1
    )
    meant = f"Did you mean {PREFIX}{near[0]}?" if near else f"There are {', '.join(sorted(KNOWN))}."
    LOG.warning("The environment has %s, which nothing reads: it has no effect. %s", name, meant)
