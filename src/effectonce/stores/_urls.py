"""URLs as a message may show them: without credentials, also where a password broke the URL."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from effectonce.errors import IN_MEMORY

ENCODE = "In a user or password, / ? # @ % and spaces have to be percent-encoded: p@ss is p%40ss."
_SECRET = re.compile(r"(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*")
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")


def shown(url: str) -> str:
    """*url* without user and password."""
    scheme, separator, rest = url.partition("://")
    _, at, place = rest.rpartition("@")
    return _SECRET.sub(r"\1…", f"{scheme}{separator}…@{place}" if at else url)


def as_option(url: str, environ: Mapping[str, str]) -> str:
    """The end of a command that names the store of this URL. A password is never printed."""
    if environ.get("EFFECTONCE_STORE") == url:
        return ""
    userinfo = url.partition("://")[2].rpartition("@")[0]
    if not url or ":" in userinfo or _SECRET.search(url):
        return " (with the URL of its store in EFFECTONCE_STORE)"
    return f" --store {shlex.quote(url)}"


def where_is(given: Any, store: Any) -> str:
    """A guard's store as a command names it: *given* its URL or an object, *store* made of it."""
    if isinstance(given, str) and given.startswith("memory:"):
        return IN_MEMORY
    path = getattr(getattr(store, "_store", store), "path", None)
    if path is not None:
        # whole: a command may be given in another folder
        return as_option(f"sqlite:///{path}", os.environ)
    return as_option(given, os.environ) if isinstance(given, str) else " --app MODULE:GUARD"


def safe_message(error: Exception, url: str) -> str:
    """What a parser said of *url*; if it quotes what precedes the @, only how to put it right."""
    userinfo = url.partition("://")[2].rpartition("@")[0]
    quoted = [single or double for single, double in _QUOTED.findall(str(error))]
    if any("@" in word or word in userinfo for word in quoted):
        return ENCODE
    return str(error).strip()
