"""How values travel to and from PostgreSQL, in its binary form."""

from __future__ import annotations

from struct import Struct as Packer

pack_float = Packer(">d").pack
pack_int = Packer(">q").pack
_unpack_float = Packer(">d").unpack
_unpack_int = Packer(">q").unpack


def pack_text(value: str) -> bytes:
    if "\x1b" in value or "\0" in value:
        value = value.replace("\x1b", "\x1b1").replace("\0", "\x1b0")
    return value.encode()


def unpack_text(value: bytes) -> str:
    text = value.decode()
    return text.replace("\x1b0", "\0").replace("\x1b1", "\x1b") if "\x1b" in text else text


def unpack_float(value: bytes) -> float:
    number: float = _unpack_float(value)[0]
    return number


def unpack_place(value: bytes) -> int:
    """The number of a row, which is an int4."""
    return int.from_bytes(value, "big")


def unpack_int(value: bytes) -> int:
    number: int = _unpack_int(value)[0]
    return number
