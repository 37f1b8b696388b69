"""Files that people write for us: TOML, or JSON by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from effectonce.errors import ContractViolation


def document(path: str | None, what: str) -> dict[str, Any]:
    """What a file says; empty if none is named. *what* is what it should hold, for the error."""
    if path is None:
        return {}
    decode = msgspec.json.decode if path.endswith(".json") else msgspec.toml.decode
    try:
        return decode(Path(path).read_bytes(), type=dict[str, Any])
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise ContractViolation(f"the {what} in {path} cannot be read: {error}") from None
