"""A downstream key in the shape that a provider takes.

    number = SHA-512 or HMAC-SHA-512 over "shape", tool, key, form, alphabet, length
    plain  = that number, written with the characters of the alphabet: as many as carry 256 bits, or
             as the provider allows.
             One that wants more characters than that gets them from the beginning again
    uuid   = 122 bits of it in the layout of RFC 9562, version 8: the version for values of one's
             own making

A key is made anew for its shape. It is no piece of `downstream_key`, so a provider that sees one
of an effect's keys cannot work out another. Only what shows goes in: the length, not the bounds;
the characters, not their order. So bounds that are written down later keep the key.
"""

from __future__ import annotations

from collections import Counter
from itertools import cycle, islice
from uuid import UUID

from msgspec import Struct

from effectonce._core.classification.classify import Rule
from effectonce._core.keys import derive_number

# no capitals: some providers compare without regard to them
DIGITS_AND_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
MOST = 255
FULL_BITS = 256  # the key of an effect has 160: more characters would tell no more effects apart
# 10^9 effects at one provider: two of them share a key with a chance of 1 in 10^11
STRONG_BITS = 96


class KeyShape(Struct, frozen=True):
    """What a provider takes as a key. Errors about it are in the words of `Effect.key_as`."""

    form: str = "plain"
    least: int = 1
    most: int = MOST
    alphabet: str = DIGITS_AND_LETTERS
    weak: bool = False  # fewer than STRONG_BITS are accepted

    def __post_init__(self) -> None:
        if self.form not in ("plain", "uuid"):
            raise ValueError(f"form={self.form!r}: give 'plain' or 'uuid'.")
        if type(self.weak) is not bool:
            raise ValueError(f"weak={self.weak!r}: give True or False.")
        if self.form == "uuid" and (self.least, self.most, self.alphabet) != (
            1,
            MOST,
            DIGITS_AND_LETTERS,
        ):
            raise ValueError(
                "a uuid has 36 characters, hexadecimal digits and dashes: leave out min, max and"
                " alphabet."
            )
        _check_bounds(self.least, self.most)
        _check_alphabet(self.alphabet)
        if not self.weak:
            _check_strength(len(self.alphabet), self.carrying)

    @property
    def carrying(self) -> int:
        """How many characters of a plain key vary by effect: enough for FULL_BITS, or `most`."""
        enough = 1
        while enough < self.most and len(self.alphabet) ** enough < 1 << FULL_BITS:
            enough += 1
        return enough

    @property
    def length(self) -> int:
        """How many characters a plain key has."""
        return max(self.least, self.carrying)

    def __str__(self) -> str:
        """All that shows: keys of shapes that read alike are alike."""
        if self.form == "uuid":
            return self.form
        usual = self.alphabet == DIGITS_AND_LETTERS
        return f"plain {self.length}" + ("" if usual else f" of {''.join(sorted(self.alphabet))}")


class SentKey(Struct, frozen=True):
    """How the provider of a tool takes its key, and what its answers say about the key."""

    shape: KeyShape
    header: str = ""  # "": it is no header
    rules: tuple[Rule, ...] = ()


def _check_bounds(least: int, most: int) -> None:
    for name, value in (("min", least), ("max", most)):
        if type(value) is not int or value < 1:
            raise ValueError(f"{name}={value!r}: give a whole number, 1 or more.")
    if least > most:
        raise ValueError(f"min={least} is more than max={most}.")


def _check_alphabet(alphabet: str) -> None:
    if not isinstance(alphabet, str):
        raise ValueError(  # noqa: TRY004
            f"alphabet={alphabet!r}: give a text with each character that a key may have."
        )  # noqa: RUF100, TRY004
    for character, count in Counter(alphabet).items():
        if count > 1:
            raise ValueError(
                f"the alphabet {alphabet!r} has {character!r} more than once. It lists every"
                " character, and knows no ranges: string.ascii_letters + string.digits."
            )
        if not "!" <= character <= "~":
            raise ValueError(
                f"the alphabet {alphabet!r} has {character!r}, which a header may lose or change."
                " Leave it out: a key may have visible characters of ASCII."
            )
    if len(alphabet) < 2:
        raise ValueError(
            f"the alphabet {alphabet!r} has fewer than two characters: every effect would have the"
            " same key."
        )


def _check_strength(characters: int, length: int) -> None:
    bits = (characters**length).bit_length() - 1
    if bits < STRONG_BITS:
        raise ValueError(
            f"a key of {length} characters out of {characters} has {bits} bits, and {STRONG_BITS}"
            " are needed: with fewer, two effects may get the same key, and the provider takes the"
            " second for a repeat of the first. Allow more characters, or a larger alphabet;"
            " weak=True accepts it as it is."
        )


def shaped_key(shape: KeyShape, key: str, tool: str, secret: bytes = b"") -> str:
    """The key of this shape to hand to the downstream: the same for an effect in every process."""
    if shape.form == "uuid":
        return _uuid(derive_number("shape", tool, key, "uuid", secret=secret))
    alphabet, length = "".join(sorted(shape.alphabet)), shape.length
    number = derive_number("shape", tool, key, "plain", alphabet, length, secret=secret)
    return "".join(islice(cycle(_written(number, alphabet, shape.carrying)), length))


def _uuid(number: int) -> str:
    version, variant = 8 << 76, 0b10 << 62
    free = number & ~(0b1111 << 76 | 0b11 << 62) & (1 << 128) - 1
    return str(UUID(int=free | version | variant))


def _written(number: int, alphabet: str, length: int) -> str:
    """From the last digit on. *number* has twice the bits shown: all characters are as likely."""
    characters = []
    for _ in range(length):
        number, digit = divmod(number, len(alphabet))
        characters.append(alphabet[digit])
    return "".join(characters)
