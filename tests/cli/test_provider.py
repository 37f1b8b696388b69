"""`effectonce provider`: what the APIs of others do with a repeat, for people and for programs."""

import pytest
from rich.cells import cell_len

from effectonce.providers import providers


def on_one_line(text):
    return " ".join(text.split())


@pytest.mark.parametrize("width", [60, 80])
def test_the_table_fits_and_cuts_no_name(anywhere, width):
    code, screen = anywhere.terminal("provider", "list", width=width)

    lines = screen.splitlines()
    assert code == 0
    assert lines[0].split() == ["PROVIDER", "KEY", "WINDOW", "REPEAT"]
    assert [line.split()[0] for line in lines[1 : len(providers()) + 1]] == providers()
    assert "`effectonce provider show aws.<service>.<Operation>`" in on_one_line(screen)
    assert max(cell_len(line) for line in lines) <= width
    assert {line.split("  ")[-1][-1] for line in lines[1 : len(providers()) + 1]} & {"…"} == set()


def test_the_table_says_where_the_key_goes_how_long_it_counts_and_what_a_repeat_gets(anywhere):
    shown = anywhere.run("-o", "table", "provider", "list").stdout.splitlines()

    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in shown}
    assert rows["stripe.v1"] == "header Idempotency-Key 24 h the first answer"
    assert rows["moov"] == "header X-Idempotency-Key no end a refusal"
    assert rows["twilio"] == "none - another effect"
    assert rows["github"] == "none ? - another effect ?"
    assert rows["brevo"] == "body headers.idempotencyKey 15 min ?"
    assert rows["discord"] == "body nonce ? what exists"
    assert rows["shopify"] == "argument @idempotent(key:) 24 h ? the first answer"


def test_a_pipe_gets_a_line_with_tabs_for_each(anywhere):
    shown = anywhere.run("provider", "list").stdout.splitlines()

    assert len(shown) == len(providers())
    assert "paypal.orders\theader PayPal-Request-Id\t6 h\tthe newest status" in shown


def test_programs_get_everything(anywhere):
    listed = anywhere.json("provider", "list")
    shown = anywhere.json("provider", "show", "razorpay.payouts")

    assert (listed["schema"], shown["schema"]) == (
        "effectonce.providers/1",
        "effectonce.provider/1",
    )
    assert [each["name"] for each in listed["providers"]] == providers()
    assert {
        "schema": "effectonce.provider/1",
        **listed["providers"][providers().index("razorpay.payouts")],
    } == shown
    assert (shown["key"]["length_min"], shown["key"]["length_max"], shown["key"]["required"]) == (
        4,
        36,
        True,
    )
    assert (shown["window_s"], shown["mismatch"], shown["facts"]["window_s"]["unverified"]) == (
        None,
        400,
        True,
    )
    assert shown["facts"]["key"]["link"].startswith("https://razorpay.com/")


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("name", ["stripe.v1", "mercadopago", "twilio", "shopify"])
def test_one_provider_fits_the_screen(anywhere, width, name):
    code, screen = anywhere.terminal("provider", "show", name, width=width)

    assert code == 0
    assert max(cell_len(line) for line in screen.splitlines()) <= width


def test_one_provider_is_shown_with_its_sources(anywhere):
    shown = on_one_line(anywhere.run("provider", "show", "mangopay").stdout)

    assert shown.startswith(
        "provider mangopay: Mangopay summary A repeat is refused with 409; the first answer can be"
        " fetched"
    )
    assert (
        "key header Idempotency-Key: 16 to 36 characters, [A-Za-z0-9-]{16,36}, a UUID fits,"
        " optional window 24 h" in shown
    )
    assert (
        "stored unknown (unverified) a repeat gets a refusal another request 409 (every repeat"
        " gets it)" in shown
    )
    assert "error 409: the key was used before" in shown
    assert shown.endswith(
        "source https://docs.mangopay.com/guide/idempotency-support "
        "read on 2026-11-17: key, window, repeat, mismatch, in flight, probe, errors"
    )


def test_what_no_page_says_is_marked(anywhere):
    shown = on_one_line(anywhere.run("provider", "show", "shopify").stdout)

    assert "window 24 h (unverified: 24 h in what others wrote)" in shown
    assert (
        "ask by the refunds of the order (unverified) not found is no proof that it did not happen"
        in shown
    )


def test_how_far_an_answer_lags_behind_is_shown(anywhere):
    shown = on_one_line(anywhere.run("provider", "show", "stripe.v1").stdout)

    assert "not found is no proof that it did not happen; the answer may lag 1 h behind" in shown


def test_a_provider_that_is_not_there_has_a_guess(anywhere):
    done = anywhere.run("provider", "show", "stirpe.v1")

    assert done.returncode == 5
    assert "there is no provider 'stirpe.v1'. Did you mean 'stripe.v1'" in done.stderr
    assert "`effectonce provider list`" in done.stderr


def test_an_operation_of_aws_is_shown_as_the_installed_botocore_has_it(anywhere):
    shown = on_one_line(anywhere.run("provider", "show", "aws.dynamodb.TransactWriteItems").stdout)

    assert "key argument ClientRequestToken: 1 to 36 characters, a UUID fits, optional" in shown
    assert "window 10 min stored unknown (unverified)" in shown
    assert "another request IdempotentParameterMismatchException" in shown
    assert "https://github.com/boto/botocore/tree/" in shown


def test_a_wrong_operation_of_aws_has_a_guess(anywhere):
    done = anywhere.run("provider", "show", "aws.ec2.RunInstance")

    assert done.returncode == 5
    assert "ec2 has no operation 'RunInstance'. Did you mean 'RunInstances'" in done.stderr
