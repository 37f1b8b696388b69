"""`effectonce indoubt`: what a person or a probe decides, and what every later call gets."""

import shlex

import pytest
from tests.cli import shop
from tests.cli.desk import Desk, undated

from effectonce import (
    EffectOnceError,
    GaveUp,
    Guard,
    Keyring,
    ReplayedFailure,
    Retry,
    State,
    current_effect,
)
from effectonce._core.ops import Doubt, Search

SAID = ("--reason", "ticket 812", "--yes")
APP = ("--app", "tests.cli.shop:guard")


def reference(desk, scope):
    return desk.json("effect", "list", "--scope", scope)["effects"][0]["reference"]


@pytest.fixture
def lost(desk):
    """The refund whose outcome nobody knows."""
    return reference(desk, "chat-4")


def states(desk):
    return desk.json("status")["counts"]


# ---------------------------------------------------------------- lists


def test_the_oldest_doubt_comes_first(desk):
    lines = [line.split("\t") for line in desk.run("indoubt", "list", "--each").stdout.splitlines()]

    assert [line[1] for line in lines] == ["refund", "mail"]
    assert lines[0][5] == "it timed out (TimeoutError: the bank did not answer within 30 s)"
    assert [
        line.split("\t")[1]
        for line in desk.run("indoubt", "list", "--each", "--tool", "mail").stdout.splitlines()
    ] == ["mail"]
    assert len(desk.run("indoubt", "list", "--each", "--limit", "1").stdout.splitlines()) == 1


def test_the_table_of_doubts_fits_a_terminal(desk):
    code, screen = desk.terminal("indoubt", "list", "--each")

    assert code == 0
    assert (
        screen.splitlines()[0]
        == "EFFECT            TOOL    WHERE           SENDS  IN DOUBT FOR  REASON"
    )
    assert screen.splitlines()[1][16:] == (
        "  refund  chat-4/refund       1           2 h  it timed out (TimeoutError: the bank…"
    )
    assert all(len(line) <= 100 for line in screen.splitlines())


def test_no_doubt_is_good_news(empty):
    done = empty.run("indoubt", "list", "--each")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "Nothing is in doubt.\n")
    assert (
        empty.run("indoubt", "list", "--each", "--tool", "refund").stderr
        == "Nothing of refund is in doubt.\n"
    )


# ---------------------------------------------------------------- people


def test_what_a_person_confirms_is_what_later_calls_get(desk, guard, lost):
    done = desk.run("indoubt", "confirm", lost, "--result", '{"receipt": 17}', *SAID)

    assert done.returncode == 0, done.stderr
    assert "Written down: it happened, says ada." in done.stderr
    assert shop.call(
        guard, "chat-4", "refund", "refund", payment_id="pay_lost", amount_minor=1700
    ) == {"receipt": 17}
    assert states(desk)["in_doubt"] == 1


def test_a_result_may_come_from_a_file_or_a_pipe(desk, lost, tmp_path):
    (tmp_path / "result.json").write_text("null")
    other = reference(desk, "newsletter")

    assert (
        desk.run("indoubt", "confirm", lost, "--result-file", "result.json", *SAID).returncode == 0
    )
    assert (
        desk.run(
            "indoubt", "confirm", other, "--result-file", "-", *SAID, text='"mailed"'
        ).returncode
        == 0
    )
    assert states(desk) == {**states(desk), "in_doubt": 0, "completed": 4}


def test_what_a_person_refutes_is_a_failure_from_then_on(desk, guard, lost):
    assert desk.run("indoubt", "refute", lost, *SAID).returncode == 0

    with guard.step("chat-4", "refund"):
        outcome = guard.call("refund", {"payment_id": "pay_lost", "amount_minor": 1700})
    assert isinstance(outcome.error, ReplayedFailure)
    assert "ticket 812" in outcome.error.error_message
    assert outcome.settled_by == "ada"


def test_a_retry_lets_the_next_call_send_it_again(tmp_path):
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    guard = shop.tools(Guard(desk.url))
    shop.call(guard, "trip", "seat", "book", seat="12A")
    (record,) = guard.store.apply(Search())
    doubt(guard, record)
    done = desk.run("indoubt", "retry", record.request.key[-12:], *SAID, "--json")

    assert done.returncode == 0, done.stderr
    assert '"state": "claimed"' in done.stdout
    assert "ada asked for another attempt." in done.stdout
    shop.call(guard, "trip", "seat", "book", seat="12A")
    assert guard.find(record.request.key).sends == 2
    guard.close()


def doubt(guard, record):
    from effectonce._core.ops import Doubt

    guard.store.apply(Doubt(record.request.key, record.token, record.epoch, "no answer"))
    assert guard.find(record.request.key).state is State.IN_DOUBT


def test_a_retry_that_could_do_it_twice_is_not_allowed(desk, lost):
    done = desk.run("indoubt", "retry", lost, *SAID)

    assert done.returncode == 4
    assert "does not honour the key" in done.stderr
    assert "Nothing was changed." in done.stderr
    assert desk.json("effect", "show", lost)["state"] == "in_doubt"


def test_what_is_not_in_doubt_cannot_be_settled(desk):
    for command in (("confirm", "--result", "1"), ("refute",), ("retry",)):
        done = desk.run("indoubt", command[0], reference(desk, "chat-1"), *command[1:], *SAID)

        assert done.returncode == 6
        assert "is not in doubt: it is completed" in done.stderr


def test_a_dry_run_changes_nothing(desk, lost):
    done = desk.run("indoubt", "refute", lost, "--reason", "seen", "--dry-run")

    assert done.returncode == 0
    assert "this would be written, by ada: seen. Nothing was changed." in done.stderr
    assert desk.json("effect", "show", lost)["state"] == "in_doubt"


@pytest.mark.parametrize(
    ("options", "environ", "said"),
    [
        (["--reason", "seen"], {}, "give --yes"),
        (["--yes"], {}, "Say why with --reason"),
        (["--yes", "--reason", " "], {}, "Say why with --reason"),
        (
            ["--yes", "--reason", "seen"],
            {"USER": "root", "LOGNAME": "root"},
            "Say who decides: --by NAME",
        ),
    ],
)
def test_without_a_terminal_everything_has_to_be_said(desk, lost, options, environ, said):
    done = desk.run("indoubt", "refute", lost, *options, **environ)

    assert done.returncode == 2
    assert said in done.stderr
    assert desk.json("effect", "show", lost)["state"] == "in_doubt"


@pytest.mark.parametrize(
    ("options", "environ", "by"),
    [
        (["--by", "grace"], {"EFFECTONCE_BY": "bob"}, "grace"),
        ([], {"EFFECTONCE_BY": "bob"}, "bob"),
        ([], {"USER": "root", "LOGNAME": "root", "SUDO_USER": "carol"}, "carol"),
    ],
)
def test_whose_decision_it_is_stays_on_the_record(desk, lost, options, environ, by):
    assert desk.json("indoubt", "refute", lost, *SAID, *options, **environ)["settled_by"] == by


@pytest.mark.parametrize(
    "options", [[], ["--result", "1", "--result-file", "result.json"], ["--result", "done"]]
)
def test_a_result_is_one_piece_of_json(desk, lost, options, tmp_path):
    (tmp_path / "result.json").write_text("null")

    assert desk.run("indoubt", "confirm", lost, *options, *SAID).returncode == 2


@pytest.mark.parametrize(
    "result",
    ["NaN", '"\\ud800"', '{"receipt": 1, "receipt": 2}', "[" * 5000 + "]" * 5000],
    ids=lambda text: text[:12],
)
def test_a_result_that_readers_could_disagree_about_is_refused(desk, lost, result):
    refused = desk.run("indoubt", "confirm", lost, "--result", result, *SAID)

    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
    assert desk.json("effect", "show", lost)["state"] == "in_doubt"


def test_a_file_that_is_no_text_is_refused(desk, lost, tmp_path):
    (tmp_path / "result.json").write_bytes(b"\xff\xfe")

    refused = desk.run("indoubt", "confirm", lost, "--result-file", "result.json", *SAID)

    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)


# ---------------------------------------------------------------- on a terminal


def test_what_a_downstream_said_does_not_command_the_terminal(empty):
    guard = Guard(empty.url)

    @guard.tool(kind="write", downstream="none", name="pay")
    def pay():
        raise TimeoutError("lost \x1b]0;settled\x07\x1b[2J\x9b1A")

    with guard.step("chat\x1b[31m", "pay\x1b[32m"):
        ref = guard.call(pay, {}).effect.reference
    guard.close()

    dialogue = (("[y/N]:", "n"),)
    screens = [
        empty.terminal("indoubt", "list", "--each", NO_COLOR="1")[1],
        empty.terminal("effect", "show", ref, NO_COLOR="1")[1],
        empty.terminal(
            "indoubt", "refute", ref, "--reason", "seen", dialogue=dialogue, NO_COLOR="1"
        )[1],
        empty.run("indoubt", "list", "--each").stdout,
    ]
    for screen in screens:
        assert "\N{REPLACEMENT CHARACTER}" in screen
        assert not {"\x1b", "\x07", "\x9b"} & set(screen)


def test_a_person_is_shown_the_effect_and_asked(desk, lost):
    dialogue = (("Reason:", "seen in the portal"), ("[y/N]:", "y"))
    code, screen = desk.terminal("indoubt", "refute", lost, dialogue=dialogue)

    assert code == 0
    assert f"refund {lost} (chat-4/refund), claimed DATE UTC" in undated(screen)
    assert "It did not happen: write this down? [y/N]:" in screen
    assert desk.json("effect", "show", lost)["reason"] == "seen in the portal"


def test_who_declines_changes_nothing(desk, lost):
    code, screen = desk.terminal(
        "indoubt", "refute", lost, "--reason", "seen", dialogue=(("[y/N]:", "n"),)
    )

    assert code == 1
    assert "Nothing was changed." in screen
    assert desk.json("effect", "show", lost)["state"] == "in_doubt"


def test_who_does_not_want_to_be_asked_is_not(desk, lost):
    code, screen = desk.terminal("indoubt", "refute", lost, "--no-input", "--reason", "seen")

    assert code == 2
    assert "give --yes" in screen


def test_what_changed_while_a_person_was_thinking_is_told(desk, guard, lost):
    (record,) = guard.store.apply(Search(scope="chat-4"))

    def meanwhile():
        guard.confirm(record.request.key, result=1, by="bob", reason="faster")

    code, screen = desk.terminal(
        "indoubt",
        "refute",
        lost,
        "--reason",
        "seen",
        dialogue=(("[y/N]:", "y"),),
        between=meanwhile,
    )

    assert code == 6
    assert "the effect is completed" in screen
    assert desk.json("effect", "show", lost)["settled_by"] == "bob"


# ---------------------------------------------------------------- probes


def test_a_probe_settles_what_it_proves_and_nothing_else(desk, lost):
    answers = desk.json("indoubt", "reconcile", *APP, MAILED="ada")

    assert [(a["tool"], a["answer"], a["state"]) for a in answers["answers"]] == [
        ("refund", "no probe", "in_doubt"),
        ("mail", "settled", "completed"),
    ]
    assert (answers["settled"], answers["no_probe"], answers["in_doubt"]) == (1, 1, 0)
    assert desk.json("effect", "list", "--tool", "mail")["effects"][0]["settled_by"] == "probe"


def test_a_probe_that_proves_nothing_says_so(desk):
    done = desk.run("indoubt", "reconcile", reference(desk, "newsletter"), *APP)

    assert done.returncode == 0
    assert done.stdout.split("\t")[2:] == [
        "in doubt",
        "in_doubt",
        "the probe did not find it, which is no proof while it may still land\n",
    ]
    assert done.stderr == "1 in doubt.\n"


def test_async_probes_are_asked_too(empty):
    import asyncio

    guard = shop.tools(Guard(empty.url))

    async def lose():
        with guard.step("parcel", "post"):
            return await guard.call("post", {"to": "ada"})

    assert asyncio.run(lose()).status == "in_doubt"
    guard.close()

    assert empty.json("indoubt", "reconcile", *APP, MAILED="ada")["settled"] == 1


def test_a_dry_run_asks_nobody(desk):
    answers = desk.json("indoubt", "reconcile", "--dry-run", *APP, MAILED="ada")

    assert (answers["would_ask"], answers["settled"]) == (1, 0)
    assert states(desk)["in_doubt"] == 2


def test_probes_are_ones_own_code(desk):
    done = desk.run("indoubt", "reconcile")

    assert done.returncode == 2
    assert "--app MODULE:GUARD" in done.stderr


def test_what_has_an_outcome_needs_no_probe(desk):
    assert desk.run("indoubt", "reconcile", reference(desk, "chat-1"), *APP).returncode == 6


# ---------------------------------------------------------------- sealed stores


@pytest.fixture
def sealed(tmp_path):
    keys = Keyring.generate("2026-11")
    (tmp_path / "keys").write_text(f"{keys}\n")
    (tmp_path / "keys").chmod(0o600)
    desk = Desk(tmp_path, f"sqlite:///{tmp_path / 'effects.db'}")
    desk.keys = keys
    import os

    os.environ["SHOP_TEST_KEYS"] = keys
    guard = shop.tools(Guard(desk.url, keyring=Keyring.from_env("SHOP_TEST_KEYS"), secret=b"shop"))
    del os.environ["SHOP_TEST_KEYS"]
    shop.fill(guard)
    guard.close()
    return desk


def test_without_its_keys_a_sealed_store_shows_what_is_in_the_clear_and_settles_nothing(sealed):
    ref = reference(sealed, "chat-4")
    said = sealed.run("effect", "show", ref, "--reveal")
    refused = sealed.run("indoubt", "refute", ref, *SAID)

    assert "it is sealed" in said.stdout
    assert "keys_file" in said.stdout
    assert "pay_lost" not in said.stdout
    assert refused.returncode == 4
    assert "This store is sealed" in refused.stderr


@pytest.mark.parametrize("how", ["environment", "file", "app"])
def test_with_its_keys_a_sealed_store_is_read_and_settled(sealed, how):
    ref = reference(sealed, "chat-4")
    with_keys = {
        "environment": {"EFFECTONCE_KEYS": sealed.keys},
        "file": {"EFFECTONCE_KEYS_FILE": "keys"},
        "app": {
            "EFFECTONCE_APP": "tests.cli.shop:guard",
            "EFFECTONCE_STORE": "",
            "SHOP_KEYS": sealed.keys,
        },
    }[how]

    assert (
        sealed.json("effect", "show", ref, "--reveal", **with_keys)["arguments"]["payment_id"]
        == "pay_lost"
    )
    assert sealed.run("indoubt", "refute", ref, *SAID, **with_keys).returncode == 0
    assert sealed.json("effect", "show", ref, **with_keys)["reason"] == "ticket 812"
    assert "ticket 812" not in sealed.run("effect", "show", ref).stdout


def test_settling_by_hand_and_by_command_are_the_same(desk, guard, lost):
    (record,) = guard.store.apply(Search(scope="chat-4"))
    desk.run("indoubt", "confirm", lost, "--result", "1", *SAID)

    with pytest.raises(EffectOnceError, match="nothing to settle"):
        guard.confirm(record.request.key, result=2, by="bob", reason="late")


def test_without_its_keys_nothing_is_said_into_a_sealed_store_and_nothing_carried_out_of_it(
    sealed, tmp_path
):
    ref = reference(sealed, "chat-4")
    (tmp_path / "letters.jsonl").write_text("")
    refused = [
        sealed.run("dlq", "discard", ref, *SAID),
        sealed.run("dlq", "export", "out.jsonl"),
        sealed.run("dlq", "import", "letters.jsonl"),
    ]

    assert [done.returncode for done in refused] == [4, 4, 4]
    assert all("This store is sealed" in done.stderr for done in refused)
    assert not (tmp_path / "out.jsonl").exists()
    assert len(sealed.run("dlq", "export", EFFECTONCE_KEYS=sealed.keys).stdout.splitlines()) == 3
    assert sealed.run("dlq", "show", ref).returncode == 0
    assert sealed.run("dlq", "discard", ref, *SAID, EFFECTONCE_KEYS=sealed.keys).returncode == 0


def test_a_dry_run_of_what_is_refused_is_refused(desk, lost):
    done = desk.run("indoubt", "retry", lost, "--reason", "again", "--dry-run")

    assert done.returncode == 4
    assert "does not honour the key" in done.stderr
    assert "would be written" not in done.stderr


# ---------------------------------------------------------------- by cause


def test_doubts_of_one_cause_are_one_line_with_the_command_that_comes_next(desk):
    groups = desk.json("indoubt", "list")

    assert groups["in_doubt"] == 2
    refund = next(group for group in groups["groups"] if group["tool"] == "refund")
    assert (refund["count"], refund["cause"]) == (1, "it timed out (TimeoutError)")
    assert refund["example"] in refund["command"]
    command = refund["command"].split()
    assert command[0] == "effectonce"
    assert desk.run(*command[1:]).returncode == 0


def test_letting_it_be_sent_again_is_a_command_that_runs_as_it_is_printed(desk):
    guard = Guard(desk.url)

    @guard.tool(kind="write", downstream="key", retry=Retry(attempts=1))
    def reserve(seat: str) -> str:
        current_effect().downstream_key  # noqa: B018  # sent with the request
        raise TimeoutError

    with guard.step("trip", 1), pytest.raises(GaveUp) as lost:
        reserve("12A")
    sent = guard.find(lost.value.effect.key)
    guard.store.apply(Doubt(sent.request.key, sent.token, sent.epoch, "no answer"))
    guard.close()

    group = next(g for g in desk.json("indoubt", "list")["groups"] if g["tool"] == "reserve")

    assert group["action"] == "let it be sent again"
    command = shlex.split(group["command"].replace("TEXT", "'the airline asked us to'"))
    assert desk.run(*command[1:], "--by", "ada", "--yes").returncode == 0
    assert not [g for g in desk.json("indoubt", "list")["groups"] if g["tool"] == "reserve"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [("", "it asks"), ("reconcile = true\n", "it asks"), ("reconcile = false\n", "it is silent")],
)
def test_a_settings_file_switches_off_what_the_guard_of_an_app_asks(
    desk, in_the_background, settings, said
):
    (desk.folder / "effectonce.toml").write_text(settings)
    (desk.folder / "quiet_app.py").write_text(
        "from effectonce import Guard\n"
        f"guard = Guard({desk.url!r})\n"
        "print('it is silent' if guard._background.pace is None else 'it asks')\n"
    )

    done = desk.run("indoubt", "reconcile", "--app", "quiet_app:guard")

    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("store", [(), ("--store",)])
def test_asking_the_probe_is_a_command_that_runs_as_it_is_printed(desk, store):
    given = (*APP, *(("--store", desk.url) if store else ()))
    groups = desk.json("indoubt", "list", *given)["groups"]
    group = next(g for g in groups if g["action"] == "ask its probe")

    done = desk.run(*shlex.split(group["command"])[1:], MAILED="ada")

    assert done.returncode in (0, 6), done.stderr
    assert "No such option" not in done.stderr


def test_a_person_sees_what_to_do_next(desk):
    code, screen = desk.terminal("indoubt", "list")

    assert code == 0
    assert screen.splitlines()[0].split() == ["EFFECTS", "TOOL", "CAUSE", "SINCE", "SUCH", "AS"]
    said = " ".join(screen.split())
    assert "refund: look downstream, then settle it. Run: effectonce effect show eff_" in said
