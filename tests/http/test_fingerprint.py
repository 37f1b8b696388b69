"""What a request asks for: which differences matter, and which do not."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effectonce.http.server.fingerprint import Fields, ParsedRequest, fingerprint_of
from effectonce.http.server.spooled_body import Spooled

ALL = Fields()


def of(body, content_type="application/json", fields=ALL, secret=b"", **other):
    asked = ParsedRequest(
        **(
            {"path": "/pay", "query": "", "content_type": content_type, "content_encoding": ""}
            | other
        )
    )
    return fingerprint_of(asked, body, fields, secret)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":1,"b":2}', b'{ "b" : 2, "a" : 1.0 }'),
        (b"[1.10]", b"[1.1]"),
        (b"1e2", b"100"),
        ('"ü"'.encode(), b'"\\u00fc"'),
        (b'{"a":1}', b'\n{"a":1}\n'),
        (b'{"n":9007199254740993}', b'{ "n":9007199254740993}'),
    ],
    ids=repr,
)
def test_the_same_json_is_the_same_request(one, other):
    assert of(one) == of(other)
    assert of(one) == of(one, 'application/json; charset="UTF-8"') == of(other, "Application/JSON")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b'{"a":null}', b"{}"),
        (b"[1,2]", b"[2,1]"),
        (b'{"n":9007199254740993}', b'{"n":9007199254740992}'),
        (b'{"n":0.1}', b'{"n":0.10000000000000000001}'),
        (b'{"n":123456789012345678901234567890}', b'{"n":123456789012345678901234567891}'),
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b'{"a":1,"a":2}', b'{"a":3,"a":2}'),
        ('"é"'.encode(), '"e\u0301"'.encode()),
        (b'"1"', b"1"),
        (b"true", b"1"),
        (b"{", b"{ "),
        (b"NaN", b"nan"),
        (b'"\\ud800"', b'"\\ud801"'),
        (b"[" * 5000, b"[" * 5001),
        (b"1e999", b"1e998"),
        (b"1e99999999999999999999", b"1e99999999999999999998"),
        (b"", b"null"),
    ],
    ids=lambda b: repr(b[:40]),
)
def test_other_json_is_another_request(one, other):
    assert of(one) != of(other)


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":2}',
        b"NaN",
        b"{",
        b'"\\ud800"',
        b"[" * 5000,
        b"9" * 5000,
        b"\xff",
        b"1e99999999999999999999",
    ],
    ids=lambda b: repr(b[:20]),
)
def test_what_is_no_json_is_compared_byte_for_byte(body):
    assert of(body) == of(body)
    assert of(body) != of(body + b" ")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_how_it_is_written_down_does_not_matter(document):
    import json

    assert of(json.dumps(document).encode()) == of(
        json.dumps(document, indent=1, ensure_ascii=False, sort_keys=True).encode()
    )


def test_path_query_type_and_encoding_count():
    kinds = [
        of(b"1"),
        of(b"1", path="/other"),
        of(b"1", query="a=1"),
        of(b"1", query="a=1&b"),
        of(b"1", "text/plain"),
        of(b"1", "text/plain; charset=latin-1"),
        of(b"1", content_encoding="gzip"),
        of(b"1", ""),
        of(b"1", "application/merge-patch+json"),
        of(b"1", "application/json; version=1"),
        of(b"1", "application/json; version=2"),
        of(b"1", "application/json; charset=latin-1"),
        of(b"1", secret=b"s"),
    ]

    assert len(set(kinds)) == len(kinds)


def test_members_can_be_chosen():
    include, exclude = Fields(include=("a", "b.c")), Fields(exclude=("t", "b.t"))

    assert of(b'{"a":1,"b":{"c":2,"x":1},"t":1}', fields=include) == of(
        b'{"a":1,"b":{"c":2},"t":2}', fields=include
    )
    assert of(b'{"a":1,"b":{"c":2}}', fields=include) != of(b'{"a":1,"b":{"c":3}}', fields=include)
    assert of(b'{"a":null}', fields=include) != of(b"{}", fields=include)
    assert of(b'{"a":1,"t":1,"b":{"t":1}}', fields=exclude) == of(b'{"a":1,"b":{}}', fields=exclude)
    assert of(b'{"b":5}', fields=exclude) != of(b'{"b":6}', fields=exclude)
    assert of(b"[1]", fields=exclude) != of(b"[2]", fields=exclude)


def form(boundary, *parts, end=b"--\r\n"):
    return (
        b"".join(b"--" + boundary + b"\r\n" + part + b"\r\n" for part in parts)
        + b"--"
        + boundary
        + end
    )


PART = b'Content-Disposition: form-data; name="a"\r\n\r\n1'


def multipart(body, boundary="x", quote=""):
    return of(body, f"multipart/form-data; boundary={quote}{boundary}{quote}")


def test_the_boundary_of_a_form_does_not_matter():
    one, other = (
        multipart(form(b"x", PART, PART)),
        multipart(form(b"long-one", PART, PART), "long-one", '"'),
    )

    assert one == other


def test_everything_else_of_a_form_does():
    forms = [
        form(b"x", PART),
        form(b"x", PART, PART),
        form(b"x", PART + b"2"),
        form(b"x", PART.replace(b"name", b"filename")),
        form(b"x"),
        form(b"x", b"a\r\nb"),
        form(b"x", b"a", b"b"),
        form(b"x", PART, end=b"--\r\nepilogue"),
        form(b"x", PART, end=b""),
        b"no form at all",
        b"",
    ]

    assert len({multipart(body) for body in forms}) == len(forms)


def test_a_body_in_a_file_has_the_same_fingerprint():
    async def main():
        body = form(b"x", PART + b"y" * 200_000, PART)
        spooled = Spooled(1000)
        for at in range(0, len(body), 70_000):
            await spooled.add(body[at : at + 70_000])
        assert not spooled.in_memory
        assert multipart(spooled.view()) == multipart(body)
        assert of(spooled.view(), "text/plain") == of(body, "text/plain")
        spooled.close()

    asyncio.run(main())


def test_large_json_is_compared_byte_for_byte_unless_members_are_chosen():
    async def spooled(body):
        made = Spooled(10)
        await made.add(body)
        view = made.view()
        made.close()
        return view

    one, other = (
        asyncio.run(spooled(body)) for body in (b'{"a":1,"b":[1,2,3]}', b'{"b":[1,2,3],"a":1}')
    )

    assert of(one) != of(other)
    assert of(one, fields=Fields(exclude=("t",))) == of(other, fields=Fields(exclude=("t",)))


def test_no_body_at_all_is_a_body():
    async def main():
        return await Spooled(10).piece(0)

    assert asyncio.run(main()) == (b"", True)
