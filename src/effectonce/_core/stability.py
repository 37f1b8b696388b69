"""Does a text change from one attempt to the next? It is judged by its shape alone.

Clocks, counts of attempts, ids of one call and e-mail addresses have shapes that are written
down below. Everything else is a name or a random value. A name is made of letters that follow
each other as in words, and seldom changes between letters, digits and capitals; a random value
does neither, so a long stretch of unusual neighbours is one.

What cannot be decided is let pass: 40 or 64 hexadecimal digits are a digest of something,
`pi_3MtwBwLkdIwHu7ix28a3tqPa` is the id of a thing, and a code of up to 13 characters may be one
that people read to each other.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

CLOCK = "a time of day"
TIMESTAMP = "a Unix timestamp"
ATTEMPT = "a count of attempts"
CALL = "the id of one call"
PERSON = "a personal identifier (an e-mail address)"
UUID_ = "a random UUID"
RANDOM = "a random value"
# so are the ids of conversations and tenants, which are made once and kept
LASTING = frozenset({UUID_, RANDOM})

READ_MAX = WEIGHT_MAX = 1024  # characters: what comes after them is not looked at

_COUNTED = (
    r"(?i)(?<![a-z])(?<!max[ _-])(?:attempt|retry|retries|try|tries|redelivery)s?(?:["
    r" _-]?(?:count|number|num|no|index))?"
    r"[\s_=:#./-]{0,3}\d{1,2}(?![0-9a-z]|["
    r" _-]?(?:times|s(?:ec|econds?)?(?![a-z])|min|hour|day|week|month))"
)
# None of these repeats a repetition, so that each is read in one pass.
_CHANGES = (
    # Conversations of Teams and WhatsApp look like addresses, and are none of a person.
    (
        r"@(?<=[^@\s/:]@)(?!thread\.(?:v2|tacv2|skype)(?![^\s/:])|g\.us(?![^\s/:]))[^@\s/:]+\.[^@\s/:]",
        PERSON,
    ),
    (r"(?<!\d)\d{4}-\d\d-\d\d[Tt ]\d\d:?\d\d", CLOCK),
    (
        (
            r"(?<!\d)20\d\d[-_.]?[01]\d[-_.]?[0-3]\d[-_Tt"
            r" ](?:0[1-9]|1\d|2[0-3])[-_:.]?[0-5]\d[-_:.]?[0-5]\d(?!\d)"
        ),
        CLOCK,
    ),
    (
        r"(?<![0-9A-Za-z])20\d\d[01]\d[0-3]\d(?:[Tt]\d{4}|[0-2]\d[0-5]\d[0-5]\d(?:\d{3}|\d{6})?(?!\d))",
        CLOCK,
    ),
    (r"(?<![0-9A-Za-z])[A-Za-z]{0,32}1[6-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?![0-9A-Za-z])", TIMESTAMP),
    (_COUNTED, ATTEMPT),
)
_OF_A_CALL = (
    r"(?<![0-9a-f])[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?![0-9a-f])",  # a trace of W3C
    r"(?<![0-9a-f])1-[0-9a-f]{8}-[0-9a-f]{24}(?![0-9a-f])",  # a trace of AWS
    # a message of Anthropic
    r"(?<![0-9A-Za-z])msg_(?:bdrk_|vrtx_)?01[0-9A-Za-z]{22}(?![0-9A-Za-z])",
    # an item of a response of OpenAI; a conversation lives on
    r"(?<![0-9A-Za-z])(?!conv_)[a-z]{2,4}_[0-9a-f]{48,56}(?![0-9A-Za-z])",
)
_UUID = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
_UUIDS = (
    r"(?i)(?<![0-9a-f])[0-9a-f]{8}-[0-9a-f]{4}-[1467][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}(?![0-9a-f])",
    # version 5 is made of a name, and stays
    r"(?i)(?<![0-9a-z])(?!.{12}5.{3}[89ab])[0-9a-f]{32}(?![0-9a-z])",
)
_BEHIND_CALL = (  # judged by what comes behind it: `call_external_api` is a name
    r"(?<![0-9A-Za-z])(?:call|tool_?call|tool_?use|toolu|chatcmpl|cmpl|fc|function-call|req|resp|adk|lc_run|run-)[_:=-]{1,3}"
    r"([0-9A-Za-z_:-]{8,})"
)
# The id of a thing says of which: of Stripe and its like, of AWS, of Twilio, of a bank account.
# It was there before the call. So was what a digest or a UUID of version 3 or 5 is made of.
_OF_A_THING = (
    r"(?<![0-9A-Za-z_-])(?:(?!run_)[a-z]{2,8}_(?:test_|live_)?[0-9A-Za-z]{14,}|[a-z]{1,8}-0[0-9a-f]{16}|[A-Z]{2}[0-9a-f]{32}"
    r"|[A-Z]{2}\d\d[0-9A-Z]{11,30}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128}|[0-9a-f]{32}"
    rf"|{_UUID})(?![0-9A-Za-z_-])"
)
_GENERATED = (
    r"(?<![0-9A-Za-z])\d{17,19}(?![0-9A-Za-z])",  # a snowflake
    r"(?<![0-9A-Za-z])(?=\d{0,23}[A-Fa-f])(?=[A-Fa-f]{0,23}\d)(?:[0-9a-f]{16}(?:[0-9a-f]{8})?|[0-9A-F]{16}(?:[0-9A-F]{8})?)(?![0-9A-Za-z])",
)
# Words, and a short number behind them: what is looked for below has more digits, capitals,
# other signs, or says that it counts attempts.
_WORDS = (
    r"(?!.*(?:attempt|retr|tr[iy]|redeliver))[a-z]{1,20}(?:[ _-][a-z]{1,20}){0,50}(?:[ _-]\d{1,7})?"
)
_NINE = r"(?=\D{0,8}\d)(?=[^A-Z]{0,8}[A-Z])(?=[^a-z]{0,8}[a-z])[0-9A-Za-z]{9}"


class _Compiled:
    """Compiled when they are first needed, not at import."""

    def __init__(self) -> None:
        self.changes = [(re.compile(pattern).search, what) for pattern, what in _CHANGES]
        self.of_a_call, self.uuids, generated = (
            [re.compile(pattern).search for pattern in patterns]
            for patterns in (_OF_A_CALL, _UUIDS, _GENERATED)
        )
        self.generated = [*self.uuids, *generated]
        self.uuid, self.behind_call = re.compile(_UUID), re.compile(_BEHIND_CALL)
        self.of_a_thing, self.nine = re.compile(_OF_A_THING), re.compile(_NINE)
        self.words = re.compile(_WORDS).fullmatch


_compiled = lru_cache(maxsize=1)(_Compiled)


def changes_in(text: str) -> str:
    """What in *text* changes on every attempt; "": nothing. What is refused everywhere is first."""
    text, known = text[:READ_MAX], _compiled()
    return "" if known.words(text) else _judged(text, known)


unstable_text = lru_cache(maxsize=1024)(changes_in)  # the same for what is asked about again


def _judged(text: str, known: _Compiled) -> str:
    without_uuids = known.uuid.sub(" ", text)  # some of their digits may look like a clock
    for search, what in known.changes:
        if search(without_uuids):
            return what
    behind = (found[1] for found in known.behind_call.finditer(text))
    if any(search(text) for search in known.of_a_call) or any(
        _is_random(each, CALLED) for each in behind
    ):
        return CALL
    if any(search(text) for search in known.uuids):
        return UUID_
    if known.nine.fullmatch(text) and unlike_a_name(text, NINE.size) >= NINE.weight:
        return RANDOM
    return RANDOM if _is_random(known.of_a_thing.sub(" ", text), UNCALLED) else ""


def _is_random(text: str, least: _Least) -> bool:
    return (
        any(search(text) for search in _compiled().generated)
        or unlike_a_name(text, least.size) >= least.weight
    )


# ---------------------------------------------------------------- names and random values


class _Least(NamedTuple):
    """How long a stretch has to be, and how unlike a name, to be taken for a random value."""

    size: int
    weight: int


CALLED = _Least(6, 9)  # behind `call_` and the like, where one is likely
NINE = _Least(6, 11)  # alone, as Mistral names the call of a tool
# anywhere: 10 of the 220,000 names of functions and classes of Python and 400 packages reach it
UNCALLED = _Least(14, 15)
# a stretch without small letters is longer: product codes, vehicles and bank accounts are
# numbered with such
CAPITALS = 20

# How much more usual two neighbours are in random values than in names, in bits from -3 (0) to 3
# (6): row a, then b, to row z. Counted in the names of functions and classes of 20 Python
# libraries.
_LETTERS = (
    "63236636365132636121455656",
    "16452666236056246325266636",
    "26561662362256056341366656",
    "24630566166356256324366656",
    "35224446566331545112645366",
    "26442266066266166243366646",
    "26460633266352466225366666",
    "06660666166446166343366646",
    "35233436666230146422646564",
    "26660666366666046616164666",
    "35540646166264546415463656",
    "15530566166266156633366646",
    "13650666266436216634366656",
    "26222416364564356621446666",
    "44336546464320336133343666",
    "16551654366266136132366646",
    "66566666666165646536066666",
    "16430646265534256323456636",
    "36361653265456335621265646",
    "26450663166556256223365636",
    "33343446366221426221666666",
    "06560666166656366666666666",
    "16541663165452256125666666",
    "26261565266536416560666546",
    "53243556366221416511643666",
    "26660666266545246545666635",
)
_CAPITAL, _TO_DIGIT, _FROM_DIGIT, _SEPARATOR, _ZEROS = 2, 2, 3, -2, -3


def unlike_a_name(text: str, size: int) -> int:
    """The weight of the most random stretch of *size* characters or more: a sum over neighbours."""
    if not any(character.isdigit() for character in text) and text == text.lower():
        return 0
    best = weight = length = changes = small = 0
    before = " "
    for character in text:
        step, change = _step(before, character)
        weight += step
        if weight <= 0:
            weight = length = changes = small = 0
        else:
            length, changes, small = length + 1, changes + change, small + character.islower()
            # A word in another language has unusual letters too, but no digits and capitals inside.
            if weight > best and changes > 1 and length + 1 >= (size if small else CAPITALS):
                best = weight
        before = character
    return best


def _step(before: str, character: str) -> tuple[int, int]:
    """What a character adds to its stretch's weight, and whether its sort differs from the last."""
    if not (character.isascii() and character.isalnum()):
        return (_SEPARATOR if character in "_-" else -WEIGHT_MAX), 0
    if not (before.isascii() and before.isalnum()):
        return 0, 0
    if before.isdigit():
        return (
            (_FROM_DIGIT, 1)
            if character.isalpha()
            else (_ZEROS if before == character == "0" else 0, 0)
        )
    if character.isdigit():
        return _TO_DIGIT, 1
    if before.islower() and character.isupper():
        return _CAPITAL, 1
    bits = int(_LETTERS[ord(before.lower()) - 97][ord(character.lower()) - 97]) - 3
    return (min(bits, 2) if before.isupper() and character.isupper() else bits), 0
