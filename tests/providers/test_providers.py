"""Providers as data: every file reads, every fact has its source, and a wrong file or name says
what is wrong.
"""

import re
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import asdict, fields, replace

import effectonce.providers as package
from effectonce import ContractViolation
from effectonce.providers import Provider, outdated, provider, providers
from effectonce.providers._model import Fact, Facts
from effectonce.providers._read import read

DATA = Path(package.__file__).parent / "data"
NAMES = sorted(path.name.removesuffix(".toml") for path in DATA.glob("*.toml"))
TODAY = date(2026, 11, 17)

LEAST = """
title = "Bank"
summary = "A repeat gets the first answer."
[key]
where = "header"
name = "Idempotency-Key"
[facts]
key = { link = "https://bank.example/docs", date = 2026-11-17 }
window_s = { unverified = true }
stored = { unverified = true }
repeat = { unverified = true }
mismatch = { unverified = true }
in_flight = { unverified = true }
probe = { unverified = true }
errors = { unverified = true }
"""


def printed_by(code):
    """What code prints in a process that has imported nothing before."""
    # With an option, it is not forked from a warm one (tests/forkserver.py).
    command = [sys.executable, "-s", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_every_file_is_listed_and_no_other_name():
    assert providers() == NAMES
    assert {"stripe.v1", "paypal.orders", "razorpay.payouts", "google.calendar", "twilio"} <= set(
        NAMES
    )
    assert len(NAMES) == 37


@pytest.mark.parametrize("name", NAMES)
def test_every_file_reads(name):
    found = provider(name)

    assert isinstance(found, Provider)
    assert found.name == name
    assert found.summary.endswith(".")
    assert found.summary.count(". ") == 0, "one sentence"
    assert provider(name) is found


@pytest.mark.parametrize("name", NAMES)
def test_every_fact_has_a_link_and_a_date_or_is_unverified(name):
    for field, fact in asdict(provider(name).facts).items():
        if fact.unverified:
            assert (fact.link, fact.date) == (None, None), field
        else:
            assert re.fullmatch(r"https://[^\s|]+", fact.link), field
            assert date(2026, 11, 1) <= fact.date <= datetime.now(UTC).date() + timedelta(days=1), (
                field
            )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_claimed_of_errors_and_probes_stands_on_a_page(name):
    found = provider(name)

    assert not found.errors or not found.facts.errors.unverified
    assert (
        found.probe is None
        or not found.probe.not_found_is_proof
        or not found.facts.probe.unverified
    )


def test_no_page_says_that_what_is_not_found_did_not_happen():
    """If one does one day, docs/reference/providers.md has to say so, too."""
    probes = [provider(name).probe for name in NAMES]

    assert not any(probe.not_found_is_proof for probe in probes if probe is not None)


def test_every_field_about_repeats_has_a_fact():
    assert {f.name for f in fields(Facts)} == {f.name for f in fields(Provider)} - {
        "name",
        "title",
        "summary",
        "facts",
    }


@pytest.mark.parametrize("name", NAMES)
def test_without_a_key_nothing_is_remembered_and_a_repeat_runs_again(name):
    found = provider(name)
    nothing = (found.key.name, found.window_s, found.stored, found.repeat) == (
        None,
        None,
        "nothing",
        "runs_again",
    )

    assert nothing == (found.key.where == "none")


@pytest.mark.parametrize("name", NAMES)
def test_a_uuid_fits_wherever_one_is_asked_for(name):
    key = provider(name).key
    uuid = "550e8400-e29b-41d4-a716-446655440000"

    if key.form == "uuid":
        assert (key.length_min or 0) <= len(uuid) <= (key.length_max or len(uuid))
        assert key.pattern is None or re.fullmatch(key.pattern, uuid)


def test_some_facts_that_people_get_wrong():
    assert provider("paypal.orders").window_s == 6 * 3600
    assert provider("paypal.payments").window_s == 45 * 86400
    assert (provider("moov").window_s, provider("moov").repeat) == ("no end", "conflict")
    assert (provider("square").window_s, provider("square").facts.window_s.unverified) == (
        None,
        False,
    )
    assert not re.fullmatch(provider("mangopay").key.pattern, "a" * 20 + "_")
    assert not re.fullmatch(provider("google.calendar").key.pattern, "refund-17")
    assert (provider("stripe.v1").stored, provider("checkout").stored) == ("all", "successes")


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("stirpe.v1", "'stripe.v1'"),
        ("paypal", "'paypal.orders', 'paypal.payments' or 'paypal.vault'"),
        ("Twilio", "'twilio'"),
    ],
)
def test_a_wrong_name_has_a_guess(wrong, near):
    with pytest.raises(ContractViolation) as raised:
        provider(wrong)

    assert str(raised.value).startswith(f"there is no provider {wrong!r}. Did you mean {near}")
    assert raised.value.corrective_action == (
        "All names: effectonce.providers.providers(), or `effectonce provider list`. An operation"
        " of AWS is aws.<service>.<Operation>."
    )


@pytest.mark.parametrize("wrong", ["", "xyzzy", "../data/twilio", "data/twilio", "twilio.toml"])
def test_a_name_is_never_a_path(wrong):
    with pytest.raises(ContractViolation, match="there is no provider"):
        provider(wrong)


# ---------------------------------------------------------------- files


def test_a_file_needs_no_more_than_what_is_known():
    found = read(LEAST, "bank.toml")

    assert (found.name, found.window_s, found.repeat, found.errors) == ("bank", None, None, ())


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('title = "Bank"', 'titel = "Bank"', "titel"),
        ('title = "Bank"', "title = 7", r"\$\.title"),
        ('title = "Bank"', 'title = "Bank"\nname = "stripe.v1"', r"stripe\.v1.*\$\.name"),
        ('title = "Bank"', "", "title"),
        ('where = "header"', 'where = "cookie"', r"\$\.key\.where"),
        ('where = "header"', 'where = "header"\nlenght_max = 3', r"lenght_max.*\$\.key"),
        (
            'where = "header"',
            'where = "header"\nlength_min = 9\nlength_max = 3',
            r"length_min.*\$\.key",
        ),
        ('where = "header"', 'where = "header"\npattern = "["', r"pattern.*\$\.key"),
        ('where = "header"', 'where = "none"', r"name.*\$\.key"),
        ('name = "Idempotency-Key"', "", r"name.*\$\.key"),
        ('title = "Bank"', 'title = "Bank"\nwindow_s = "for some days"', r"\$\.window_s"),
        ('title = "Bank"', 'title = "Bank"\nwindow_s = 0', r"\$\.window_s"),
        ('title = "Bank"', 'title = "Bank"\nrepeat = "replays"', r"\$\.repeat"),
        (
            'title = "Bank"',
            'title = "Bank"\nerrors = [{ status = 409 }]',
            r"meaning.*\$\.errors\[0\]",
        ),
        (
            'title = "Bank"',
            'title = "Bank"\nerrors = [{ meaning = "refused", says = "refused" }]',
            r"status.*\$\.errors\[0\]",
        ),
        ("probe = { unverified = true }", "", "probe"),
        ("probe = { unverified = true }", "probe = { }", r"unverified.*\$\.facts\.probe"),
        (
            "probe = { unverified = true }",
            "probe = { unverified = true, date = 2026-11-17 }",
            r"unverified.*\$\.facts\.probe",
        ),
        ('"https://bank.example/docs"', '"http://bank.example/docs"', r"https.*\$\.facts\.key"),
        (", date = 2026-11-17", ', date = "last week"', r"\$\.facts\.key\.date"),
        (", date = 2026-11-17", "", r"date.*\$\.facts\.key"),
        ("[facts]", "[facts", "line"),
    ],
)
def test_a_wrong_file_names_itself_and_the_field(old, new, said):
    assert old in LEAST

    with pytest.raises(ContractViolation, match=rf"^providers/data/bank\.toml: .*{said}"):
        read(LEAST.replace(old, new), "bank.toml")


# ---------------------------------------------------------------- age


def test_facts_older_than_180_days_are_found():
    bank = read(LEAST, "bank.toml")

    assert outdated(bank, TODAY) == []
    assert outdated(bank, TODAY + timedelta(days=180)) == []
    assert outdated(bank, TODAY + timedelta(days=181)) == ["key"]


def test_what_was_never_verified_is_not_outdated():
    never = Facts(**dict.fromkeys((f.name for f in fields(Facts)), Fact(unverified=True)))

    assert outdated(replace(read(LEAST, "bank.toml"), facts=never), date(2126, 1, 1)) == []


# ---------------------------------------------------------------- imports


def test_reading_a_provider_imports_no_sdk_and_listing_reads_no_file():
    code = (
        "import sys; from effectonce.providers import provider, providers; providers();"
        " print('tomllib' in sys.modules);provider('stripe.v1'); print(sorted(set(sys.modules) &"
        " {'stripe', 'httpx', 'requests', 'click', 'rich', 'asyncio'}))"
    )

    assert printed_by(code) == "False\n[]\n"
