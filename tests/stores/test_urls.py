"""How a store is named in a command that is printed."""

import pytest

from effectonce.stores._urls import as_option


@pytest.mark.parametrize(
    ("url", "environ", "said"),
    [
        ("redis://cache/0", {"EFFECTONCE_STORE": "redis://cache/0"}, ""),
        ("redis://cache/0", {"EFFECTONCE_STORE": "redis://cache/1"}, " --store redis://cache/0"),
        ("redis://:secret@cache/0", {}, " (with the URL of its store in EFFECTONCE_STORE)"),
        ("sqlite:///a b.db", {}, " --store 'sqlite:///a b.db'"),
    ],
)
def test_a_store_is_named_unless_the_environment_does_or_it_lets_others_in(url, environ, said):
    assert as_option(url, environ) == said
