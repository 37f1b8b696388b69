"""One look at plain arguments gives the key, the fingerprint and the stored form: the same bytes
that the definition gives, for any call.
"""

import functools
import hashlib
import hmac
import inspect
import os
import random
from decimal import Decimal

import msgspec
import pytest
import rfc8785

from effectonce import Guard
from effectonce._core.codec import decode
from tests.core.examples import two_tiers

CALLS = 5 * int(os.environ.get("EFFECTONCE_SOAK", "4000"))  # `make soak` makes 100,000
TEXTS = (
    "",
    "ord_17",
    "a b",
    'quoted "so"',
    "line\nbreak",
    "žluťoučký",
    "€",
    "\ufb01",
    "\U0001f600",
    "x" * 300,
)
NAMES = ("a", "b", "z", "é", "\ue000", "\U0001f600", "\ufb33")
NUMBERS = (0, -1, 7, 2**53 - 1, -(2**53) + 1, 2**53, 2**63, -(2**63), 2**64, 2**70)
FLOATS = (0.5, -0.0, 1.0, 1e-7, 12.25, 1e21, 123456789.125, -3.3e-5, 1e15, 99999999999999.5)
PLACES = ("step-1", "pay", "refund of April", "zaplať")


@functools.lru_cache(maxsize=4096, typed=True)
def text_of(scalar):
    return rfc8785.dumps(scalar).decode()


signature_of = functools.cache(inspect.signature)


def written(value):
    """The canonical form by its definition: RFC 8785, and tags for what JSON cannot carry."""
    match value:
        case bool() | None | str() | float():
            return text_of(value)
        case int():
            return str(value) if abs(value) < 2**53 else f"#int:{value}"
        case Decimal():
            return f"#decimal:{value.as_tuple().digits[0]}e{value.as_tuple().exponent}"
        case bytes():
            return f'#bytes:"{value.hex()}"'
        case list() | tuple():
            return "[" + ",".join(map(written, value)) + "]"
        case dict():
            names = sorted(value, key=lambda name: name.encode("utf-16-be"))
            return "{" + ",".join(f"{text_of(name)}:{written(value[name])}" for name in names) + "}"


def digest(secret, message):
    return (
        hmac.digest(secret, message, "sha256").hex()
        if secret
        else hashlib.sha256(message).hexdigest()
    )


def derived(secret, *parts):
    return digest(secret, msgspec.msgpack.encode(("effectonce v1", *parts)))


def defined(function, identity, volatile, secret, step, args, kwargs):
    """The key, the latch, the fingerprint and the arguments of a call, by their definitions."""
    bound = signature_of(function).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments, tool = bound.arguments, function.__name__
    matched = {name: value for name, value in arguments.items() if name not in volatile}
    intent = {name: arguments[name] for name in identity} if identity else matched
    home = derived(secret, "home", "main", "chat-1")[:8]
    key = derived(secret, "main", "step", "chat-1", step, tool, written(intent).encode())
    latch = derived(secret, "main", "latch", "chat-1", 1, step)
    document = (text_of(tool) + written(matched)).encode()
    fingerprint = (
        f"v1h:{digest(secret, b'fingerprint ' + document)}"
        if secret
        else f"v1:{digest(b'', document)}"
    )
    return home + key[:32], home + latch[:32], fingerprint, dict(arguments)


def pay(order, amount=4200, currency="eur", note="", *, lines=None, draft=False):
    """All are parameters of either sort, with defaults of some."""


def send(to, /, *texts, subject="", **headers):
    """Python's own binding."""


TOOLS = (
    (pay, None, ()),
    (pay, ("order", "amount"), ()),
    (pay, ("order", "order"), ("note",)),
    (pay, ("order",), ("note", "draft")),
    (send, None, ()),
    (send, ("to", "subject"), ("headers",)),
)


def scalar(rng):
    return rng.choice(
        (
            rng.choice(TEXTS),
            rng.choice(NUMBERS),
            rng.choice(FLOATS),
            rng.random(),
            rng.randrange(10**6),
            True,
            False,
            None,
        )
    )


def value_of(rng, levels=2):
    sort = rng.random()
    if sort < 0.75 or levels == 0:
        return scalar(rng)
    if sort < 0.85:
        return [value_of(rng, levels - 1) for _ in range(rng.randrange(4))]
    if sort < 0.95:
        return {rng.choice(NAMES): value_of(rng, levels - 1) for _ in range(rng.randrange(4))}
    return rng.choice(((1, "two"), Decimal("7e-2"), b"bytes"))


def call_of(rng, function):
    if function is send:
        headers = {name: value_of(rng) for name in rng.sample(("x_one", "x_two"), rng.randrange(3))}
        return tuple(value_of(rng) for _ in range(rng.randrange(1, 4))), {
            "subject": scalar(rng),
            **headers,
        }
    args = tuple(value_of(rng) for _ in range(rng.randrange(5)))
    left = ("order", "amount", "currency", "note")[len(args) :]
    names = (
        [*left[:1], *rng.sample(left[1:], rng.randrange(len(left) or 1))]
        if not args
        else rng.sample(left, rng.randrange(len(left) + 1))
    )
    named = rng.sample(("lines", "draft"), rng.randrange(3))
    return args, {name: value_of(rng) for name in (*names, *named)}


@pytest.mark.parametrize(
    "secret", [b"", b"0123456789abcdef0123456789abcdef"], ids=["bare", "secret"]
)
@two_tiers(1000, CALLS // 2)
def test_every_call_has_the_key_and_the_fingerprint_that_its_definition_gives(secret, number):
    rng = random.Random(18)
    guards = [Guard("memory://", secret=secret) for _ in TOOLS]
    tools = [
        guard.tool(kind="write", identity=identity, volatile=list(volatile))(
            function
        ).__effectonce_tool__
        for guard, (function, identity, volatile) in zip(guards, TOOLS, strict=True)
    ]
    for call in range(number):
        which, step = call % len(TOOLS), rng.choice(PLACES)
        function, identity, volatile = TOOLS[which]
        args, kwargs = call_of(rng, function)

        with guards[which].step("chat-1", step):
            request = tools[which].prepare(args, kwargs).request

        found = request.key, request.latch, request.fingerprint, decode(request.arguments).content
        assert found == defined(function, identity, volatile, secret, step, args, kwargs), (
            args,
            kwargs,
        )
