"""The page of the reference has what the code has."""

import re
from pathlib import Path

from msgspec.structs import fields

from effectonce.dashboard import Access
from effectonce.dashboard._actions import LOOKS
from effectonce.dashboard._fallback import FALLBACK
from effectonce.dashboard._pages import PAGES
from effectonce.dashboard._playground import PLAYGROUND
from effectonce.dashboard._security import HEADERS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "dashboard.md").read_text()


def test_everything_that_an_access_says_is_in_the_reference():
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", PAGE, re.MULTILINE))

    assert set(rows) == {field.name for field in fields(Access)}
    assert all(
        str(field.default) in rows[field.name] for field in fields(Access) if field.name != "who"
    )


def test_every_page_is_in_the_reference():
    for path, _, _ in (*PAGES, *LOOKS, *PLAYGROUND, *FALLBACK):
        assert f"`{path.replace('{reference}', 'eff_…')}`" in PAGE


def test_what_protects_a_page_is_in_the_reference():
    shown = {"x-frame-options": "no frames", "cross-origin-resource-policy": "another site"}
    for name, value in HEADERS.items():
        assert any(word.lower() in PAGE.lower() for word in (name, value, shown.get(name, name))), (
            name
        )
