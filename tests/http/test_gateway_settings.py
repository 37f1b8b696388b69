"""What a gateway is told, and how it says that it cannot be right."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from effectonce import ContractViolation, Keyring
from effectonce.cli import main
from effectonce.http.gateway.app import (
    Gateway,
    Settings,
    TenantSettings,
    UpstreamSettings,
    read_settings,
)
from effectonce.http.gateway.settings import Tenants
from effectonce.http.server.problems import PROBLEMS
from effectonce.http.server.profiles import Style
from tests.http.helpers import a_scope

ROOT = Path(__file__).parents[2]
GOOD = {
    "upstream": {"url": "http://127.0.0.1:9"},
    "hosts": ["api.example"],
    "tenants": {"header": "x-tenant"},
    "store": "memory://",
}


def settings(**changes):
    return read_settings(None, GOOD | changes)


def gateway(*arguments):
    return CliRunner().invoke(main, ["gateway", *arguments])


def test_the_example_can_be_used(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    said = gateway("--config", str(ROOT / "examples" / "gateway.toml"), "--check")

    assert (said.exit_code, said.output) == (0, "The settings can be used.\n")


def test_the_command_line_alone_says_enough(tmp_path):
    store = f"sqlite:///{tmp_path / 'gateway.db'}"
    needed = {
        "--upstream": "http://127.0.0.1:9",
        "--allow-host": "api.example",
        "--tenant-header": "x-tenant",
        "--store": store,
    }
    given = [word for pair in needed.items() for word in pair]

    assert gateway(*given, "--check").exit_code == 0
    for left_out in range(0, len(given), 2):
        said = gateway(*given[:left_out], *given[left_out + 2 :], "--check")
        assert (said.exit_code, f"Give {given[left_out]} " in said.output) == (2, True), said.output


def test_json_is_read_and_options_win_over_the_file(tmp_path):
    (tmp_path / "g.json").write_text(json.dumps(GOOD))

    read = read_settings(
        str(tmp_path / "g.json"), {"upstream": {"key_header": "x-key"}, "hosts": ["other"]}
    )

    assert (read.upstream.url, read.upstream.key_header, read.hosts) == (
        "http://127.0.0.1:9",
        "x-key",
        ["other"],
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"upstream": {"url": "ftp://x"}}, "http:// or https://"),
        ({"upstream": {"url": "http://"}}, "http:// or https://"),
        ({"upstream": {"url": "http://u:p@x"}}, "Credentials"),
        ({"upstream": {"url": "http://x/?q=1"}}, "http:// or https://"),
        ({"upstream": {"url": "http://x", "honours_key_s": 0}}, "leave it out"),
        ({"upstream": {"url": "http://x", "answer_s": 0}}, "more than 0"),
        ({"upstream": {"url": "http://x", "other": 0}}, "unknown field `other`"),
        ({"upstream": {"url": "http://x", "key_header": "x key"}}, "name of a header"),
        ({"hosts": []}, "hosts is empty"),
        ({"hosts": ["*"]}, "no patterns"),
        ({"hosts": ["*.example"]}, "no patterns"),
        ({"tenants": {}}, "either header"),
        ({"tenants": {"header": "x", "tokens": {"t": "a"}}}, "either header"),
        ({"tenants": {"tokens": {"t": ""}}}, "no name of a tenant"),
        ({"tenants": {"header": "Authorization"}}, "holds a secret"),
        ({"body_max": "big"}, "body_max"),
        ({"anonymous": True}, "unknown field `anonymous`"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(changes, said):
    with pytest.raises(ContractViolation, match=re.escape(said)):
        settings(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"retry": {"tries": 3}}, "[retry]"),
        ({"retry": {"attempts": 0}}, "at least one attempt"),
        ({"breaker": {"failures": 0}}, "at least one"),
        ({"budget": {"capacity": 0}}, "some tokens"),
        ({"key": {"colour": 1}}, "[key]"),
        ({"key": {"bits_min": "many"}}, "[key] cannot be used: Expected `float`"),
        ({"key": {"strict": "no"}}, "[key] cannot be used: Expected `bool`"),
        ({"profile": "other"}, "ietf"),
        ({"routes": [{"path": "pay"}]}, "starts with /"),
        ({"routes": [{"path": "/pay", "downstream": "key"}]}, "upstream.honours_key_s"),
        ({"routes": [{"way": "/pay"}]}, "[routes]"),
        ({"secret_file": "/nowhere/secret"}, "cannot be read"),
        ({"keys_env": "OUR_KEYS"}, "keys_env needs secret_file"),
        (
            {"keys_env": "NO_SUCH_KEYS", "secret_file": str(ROOT / "LICENSE")},
            "NO_SUCH_KEYS is empty or missing",
        ),
        ({"upstream": {"url": "https://x", "ca_file": "/nowhere/ca"}}, "cannot be used"),
    ],
)
def test_policies_that_cannot_be_right_are_refused_before_anything_listens(changes, said):
    with pytest.raises(ContractViolation, match=re.escape(said)):
        Gateway(settings(**changes))


@pytest.mark.parametrize("text", ["hosts = [", "{"])
def test_a_file_that_cannot_be_read_is_said_to_be(tmp_path, text):
    path = tmp_path / ("g.json" if text == "{" else "g.toml")
    path.write_text(text)

    said = gateway("--config", str(path))

    assert said.exit_code == 2
    assert f"the settings in {path} cannot be read" in said.output


@pytest.mark.parametrize(
    "arguments",
    [["--listen", "8080"], ["--listen", "x:99999"], ["--keyfile", str(ROOT / "LICENSE")]],
)
def test_a_wrong_use_of_the_command_is_said_to_be(arguments):
    assert gateway(*arguments).exit_code == 2


def test_no_password_of_the_upstream_is_shown():
    with pytest.raises(ContractViolation, match="Credentials") as refused:
        read_settings(None, GOOD | {"upstream": {"url": "https://us:pa55@api.example"}})

    assert "pa55" not in str(refused.value)


def test_whether_a_request_may_be_sent_again_is_up_to_the_upstream_not_to_the_profile():
    honours = GOOD["upstream"] | {"honours_key_s": 60}

    assert settings(profile="stripe_v2").a_profile().downstream.capability == "none"
    assert settings(profile="ietf", upstream=honours).a_profile().downstream.capability == "key"
    assert settings(upstream=honours).a_profile().downstream.window_s == 60


def test_the_secret_is_read_from_its_file(tmp_path):
    (tmp_path / "secret").write_bytes(b"s3cret\n")

    assert settings(secret_file=str(tmp_path / "secret")).a_secret() == b"s3cret"
    assert settings().a_secret() == b""


def test_a_secret_that_is_empty_is_none(tmp_path):
    (tmp_path / "secret").write_bytes(b"\n")

    with pytest.raises(ContractViolation, match="is empty"):
        settings(secret_file=str(tmp_path / "secret")).a_secret()


def test_a_gateway_seals_what_it_stores_and_keeps_what_the_store_was_not_told(
    tmp_path, monkeypatch
):
    (tmp_path / "secret").write_bytes(b"s3cret")
    monkeypatch.setenv("OUR_KEYS", Keyring.generate("2026-11"))

    guard = settings(
        secret_file=str(tmp_path / "secret"), keys_env="OUR_KEYS", spool=str(tmp_path / "spool")
    ).a_guard()

    assert guard.keyring.ids == ("2026-11",)
    assert guard.spool.folder == tmp_path / "spool"


def test_the_profile_is_changed_by_what_a_file_can_say():
    changed = settings(
        key={"style": "application/json", "not_stored": [400], "wait_s": 5}
    ).a_profile()

    assert (changed.style, changed.not_stored, changed.wait_s) == (
        Style.STRIPE,
        frozenset({400}),
        5,
    )


@pytest.mark.parametrize(
    ("lines", "tenant"),
    [
        ([], None),
        (["alice"], "alice"),
        (["alice", "bob"], None),
        ([""], None),
        (["x" * 201], None),
        (["a\x01"], None),
    ],
)
def test_a_tenant_in_a_header_is_one_name_or_nobodys(lines, tenant):
    scope = a_scope(tenant=None)
    scope["headers"] += [(b"x-tenant", line.encode()) for line in lines]

    assert Tenants(TenantSettings(header="X-Tenant"))(scope) == tenant


def test_every_setting_and_problem_is_on_its_page():
    page = (ROOT / "docs" / "reference" / "gateway.md").read_text()
    names = [
        *Settings.__struct_fields__,
        *(f"upstream.{name}" for name in UpstreamSettings.__struct_fields__),
    ]
    names += [f"tenants.{name}" for name in TenantSettings.__struct_fields__]
    shown = dict(re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|$", page, re.MULTILINE))

    assert [
        name
        for name in names
        if name not in ("upstream", "tenants") and f"| `{name}` |" not in page
    ] == []
    assert shown == {code: str(told.status) for code, told in PROBLEMS.items()}
