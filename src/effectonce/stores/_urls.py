"""URLs as a message may show them: without those whom they let in, also where a password has broken the URL."""

from __future__ import annotations

import re

ENCODE = "In a user or password, / ? # @ % and spaces have to be percent-encoded: p@ss is p%40ss."
_SECRET = re.compile(r"(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*=)[^&]*")
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")


def shown(url: str) -> str:
    """*url* without user and password."""
    scheme, separator, rest = url.partition("://")
    _, at, place = rest.rpartition("@")
    return _SECRET.sub(r"\1…", f"{scheme}{separator}…@{place}" if at else url)


def tellable(error: Exception, url: str) -> str:
    """What a parser said about *url*, unless it quotes what stands before the @: then only how to put it right."""
    userinfo = url.partition("://")[2].rpartition("@")[0]
    quoted = [single or double for single, double in _QUOTED.findall(str(error))]
    if any("@" in word or word in userinfo for word in quoted):
        return ENCODE
    return str(error).strip()
