"""Sealing and opening bytes: what fits, what does not, and what a key may be."""

import base64
import os
import sys
import threading
import traceback
from datetime import UTC, date, datetime

import pytest
from hypothesis import strategies as st

from effectonce import ContractViolation, Keyring
from effectonce.stores.keyring import NotOpened
from tests.core.examples import examples

OLD, NEW = b"o" * 32, b"n" * 32
RING = Keyring({"2026-11": NEW, "2026-05": OLD})
FIELDS = st.sampled_from(["arguments", "outcome", "evidence", "reason"])


@examples(st.binary(), st.text(), FIELDS)
def test_what_is_sealed_opens_again_and_sealing_twice_gives_the_same_bytes(data, key, field):
    sealed = RING.seal(data, key, field)

    assert RING.open(sealed, key, field) == data
    assert RING.seal(data, key, field) == sealed


@examples(st.binary(min_size=1), st.text(), st.text(), FIELDS, FIELDS)
def test_what_is_moved_to_another_row_or_field_does_not_open(
    data, key, other_key, field, other_field
):
    sealed = RING.seal(data, key, field)

    if (key, field) != (other_key, other_field):
        assert RING.seal(data, other_key, other_field) != sealed
        with pytest.raises(NotOpened, match="belongs to another effect"):
            RING.open(sealed, other_key, other_field)


@examples(st.binary(min_size=1), st.data())
def test_what_is_changed_or_cut_does_not_open(data, draw):
    sealed = RING.seal(data, "k", "outcome")
    body = len(b"v1 sealed 2026-11 ")
    place = draw.draw(st.integers(body, len(sealed) - 1))
    bit = 1 << draw.draw(st.integers(0, 7))
    changed = sealed[:place] + bytes([sealed[place] ^ bit]) + sealed[place + 1 :]

    for broken in (changed, sealed[:place], sealed + b"x"):
        with pytest.raises(NotOpened, match="it was changed in the store"):
            RING.open(broken, "k", "outcome")


@examples(st.sets(st.binary(min_size=1), min_size=2, max_size=8))
def test_no_two_contents_of_one_field_share_a_nonce(contents):
    head = len(b"v1 sealed 2026-11 ")

    assert len({RING.seal(data, "k", "outcome")[head : head + 12] for data in contents}) == len(
        contents
    )


@examples(st.binary(min_size=8))
def test_the_plaintext_is_not_in_the_sealed_form(data):
    assert data not in RING.seal(data, "k", "outcome")[len(b"v1 sealed 2026-11 ") :]


def test_the_form_of_version_1_stays_as_it_is():
    sealed = RING.seal(b'v1 ok {"receipt":1}', "ab" * 20, "outcome")

    assert sealed.startswith(b"v1 sealed 2026-11 ")
    assert (
        sealed[18:].hex()
        == "77664c6ac55ee2b477092612e1527da76751067052ba2030b5f3e065cef1a55c0bd2f62488fc90e614fc10b06275e7"
    )


def test_a_key_that_is_not_here_is_named():
    sealed = Keyring({"2026-05": OLD}).seal(b"x", "k", "outcome")

    with pytest.raises(
        NotOpened, match=r"sealed with key '2026-05', which this process does not have"
    ):
        Keyring({"2026-11": NEW}).open(sealed, "k", "outcome")
    with pytest.raises(NotOpened, match=r"sealed with another key that was called '2026-05'"):
        Keyring({"2026-05": NEW}).open(sealed, "k", "outcome")


def test_nothing_stays_nothing_and_what_was_never_sealed_is_refused():
    assert RING.seal(b"", "k", "outcome") == RING.open(b"", "k", "outcome") == b""
    with pytest.raises(NotOpened, match="not sealed"):
        RING.open(b"v1 ok 1", "k", "outcome")


@pytest.mark.parametrize(
    "day", ["9999-12-30", date(9999, 12, 30), datetime(9999, 12, 30, 12, tzinfo=UTC)]
)
def test_what_was_never_sealed_is_read_until_the_day_that_was_named(day):
    assert Keyring({"a": NEW}, plaintext_until=day).open(b"v1 ok 1", "k", "outcome") == b"v1 ok 1"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Keyring({}), "needs a key"),
        (lambda: Keyring({"a": NEW}, primary="b"), "primary='b' is not in this keyring; it has a"),
        (
            lambda: Keyring({"a": NEW}, plaintext_until="tomorrow"),
            "plaintext_until='tomorrow' is no day",
        ),
        (lambda: Keyring({"a": NEW}, plaintext_until=31), "plaintext_until=31 is no day"),
        (lambda: Keyring({"a": b"short"}), "'a' is not 32 bytes"),
        (lambda: Keyring({"a": "n" * 32}), "'a' is not 32 bytes"),
        (lambda: Keyring({"a b": NEW}), "'a b' is not an id"),
        (lambda: Keyring({"": NEW}), "'' is not an id"),
        (lambda: Keyring({7: NEW}), "7 is not an id"),
        (lambda: Keyring.generate("a:b"), "'a:b' is not an id"),
    ],
)
def test_a_keyring_that_cannot_work_is_refused_with_the_reason(make, why):
    with pytest.raises(ContractViolation, match=why):
        make()


def test_a_keyring_is_read_from_the_environment_and_the_first_key_seals(monkeypatch):
    url_safe = base64.urlsafe_b64encode(b"\xff\xfe" * 16).decode()
    monkeypatch.setenv("EFFECTONCE_KEYS", f"{Keyring.generate('2026-11')}, 2026-05:{url_safe},")

    ring = Keyring.from_env()

    assert (ring.primary, ring.ids) == ("2026-11", ("2026-11", "2026-05"))
    assert (
        ring.open(Keyring({"2026-05": b"\xff\xfe" * 16}).seal(b"x", "k", "outcome"), "k", "outcome")
        == b"x"
    )
    with pytest.raises(NotOpened, match="not sealed"):
        ring.open(b"v1 ok 1", "k", "outcome")
    monkeypatch.setenv("EFFECTONCE_PLAINTEXT_UNTIL", "9999-12-30")
    assert Keyring.from_env().open(b"v1 ok 1", "k", "outcome") == b"v1 ok 1"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "MY_KEYS is empty or missing"),
        ("a:c2VjcmV0LXNlY3JldA=", "entry 1 of MY_KEYS is not id:base64"),
        ("a", "entry 1 of MY_KEYS is not id:base64"),
        ("a:ключ", "entry 1 of MY_KEYS is not id:base64"),
        (
            "a:" + base64.b64encode(NEW).decode() + ",a:" + base64.b64encode(OLD).decode(),
            "two keys with the id 'a'",
        ),
    ],
)
def test_a_keyring_in_the_environment_that_cannot_be_read_is_refused_and_never_shown(
    value, why, monkeypatch
):
    monkeypatch.setenv("MY_KEYS", value)

    with pytest.raises(ContractViolation, match=why) as caught:
        Keyring.from_env("MY_KEYS")

    assert "c2Vj" not in str(caught.value)


@pytest.mark.parametrize(
    "form", ["{0}", "{0}:", "{0}:2026-11", "{0}:abcd", "2026-11 {0}", "2026-11:{0}{0}"]
)
@pytest.mark.parametrize("key", [b"\xff\xfe" * 16, b"abcd" * 8], ids=["signs", "letters"])
def test_a_key_that_stands_where_its_id_should_is_not_shown(monkeypatch, form, key):
    """Somebody sets the variable to the key alone, which is the first thing that one tries."""
    text = base64.b64encode(key).decode()
    monkeypatch.setenv("MY_KEYS", form.format(text))

    with pytest.raises(
        ContractViolation, match="entry 1 of MY_KEYS is not id:base64 of 32 bytes"
    ) as caught:
        Keyring.from_env("MY_KEYS")

    assert text[:8] not in "".join(traceback.format_exception(caught.value))


def test_a_key_that_is_given_as_it_is_is_not_shown_either():
    for alone in (base64.b64encode(NEW).decode(), NEW, [NEW]):
        with pytest.raises(ContractViolation, match="takes keys by their ids") as caught:
            Keyring(alone)
        assert str(alone)[:6] not in str(caught.value)


def test_a_new_primary_seals_at_once_and_the_old_key_still_opens():
    ring = Keyring({"2026-05": OLD})
    before = ring.seal(b"x", "k", "outcome")

    ring.add("2026-11", NEW)
    assert ring.seal(b"x", "k", "outcome") == before
    ring.add("2026-11", NEW, primary=True)

    assert ring.seal(b"x", "k", "outcome").startswith(b"v1 sealed 2026-11 ")
    assert ring.open(before, "k", "outcome") == b"x"


def test_a_key_is_never_replaced_by_another_of_its_name():
    ring = Keyring({"2026-05": OLD})
    sealed = ring.seal(b"x", "k", "outcome")

    with pytest.raises(ContractViolation, match="Nothing was changed"):
        ring.add("2026-05", NEW, primary=True)

    assert ring.open(sealed, "k", "outcome") == b"x"


def test_a_keyring_shows_no_key():
    assert repr(RING) == "Keyring(2026-11, 2026-05; primary=2026-11)"
    assert all(NEW not in value for value in vars(RING).values() if isinstance(value, bytes))
    assert NEW.decode() not in str(vars(RING))


def test_threads_seal_and_open_while_the_keys_rotate():
    ring = Keyring({"0": NEW})
    wrong = []

    def work(name):
        for n in range(300):
            data = f"{name} {n}".encode()
            if ring.open(ring.seal(data, name, "outcome"), name, "outcome") != data:
                wrong.append(data)

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for n in range(1, 50):
        ring.add(str(n), os.urandom(32), primary=True)
    for thread in threads:
        thread.join()

    assert wrong == []
    assert ring.primary == "49"


def test_without_the_extra_a_keyring_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)

    with pytest.raises(ContractViolation, match=r"pip install 'effectonce\[encryption\]'"):
        Keyring({"a": NEW})
