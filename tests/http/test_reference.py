"""The page of the middleware shows its profiles, statuses and parameters as the code has them."""

import inspect
import re
from pathlib import Path

from effectonce._core.guarantees import Capability
from effectonce._text import span
from effectonce.http.server import IdempotencyMiddleware
from effectonce.http.server.profiles import PROFILES, Trouble
from effectonce.http.server.responses import KEPT
from effectonce.http.server.routes import Route

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "http.md").read_text()


def rows(mark):
    table = re.search(rf"<!-- {mark} -->\n(.*?)<!-- /{mark} -->", PAGE, re.DOTALL)[1].splitlines()[
        2:
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def after_5xx(profile):
    again = profile.downstream.capability is Capability.KEY
    return "replayed" if profile.stores_5xx else "run again" if again else "in doubt"


FACTS = {
    "a key is": lambda p: "required" if p.required else "accepted",
    "it looks like": lambda p: "a quoted string" + " or a bare word" * (not p.strict),
    "its length": lambda p: f"{p.length_min} to {p.length_max}",
    "its letters say at least": lambda p: f"{p.bits_min:g} bits",
    "it is honoured for": lambda p: span(p.window_s),
    "the same request in flight": lambda p: (
        "is answered at once" if p.wait_s == 0 else f"is waited for, {span(p.wait_s)}"
    ),
    "not stored": lambda p: ", ".join(map(str, sorted(p.not_stored))),
    "after a 5xx": after_5xx,
    "our own answers": lambda p: f"`{p.style.value}`",
}


def test_the_profiles_are_as_the_page_says():
    assert rows("profiles") == [
        [fact, *(of(profile) for profile in PROFILES.values())] for fact, of in FACTS.items()
    ]


def test_the_statuses_are_as_the_page_says():
    assert rows("troubles") == [
        [f"`{trouble}`", *(str(profile.status[trouble]) for profile in PROFILES.values())]
        for trouble in Trouble
    ]


def test_every_parameter_is_on_the_page():
    mine = set(inspect.signature(IdempotencyMiddleware).parameters) - {"app", "guard"}
    shown = set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) - set(Trouble)

    assert shown == mine
    assert all(name in PAGE for name in inspect.signature(Route).parameters)


def test_the_headers_that_are_kept_are_as_the_page_says():
    said = re.search(r"<!-- kept -->\n(.*?)<!-- /kept -->", PAGE, re.DOTALL)[1]

    assert re.findall(r"`([\w-]+)`", said) == sorted(KEPT)
