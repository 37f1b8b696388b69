"""What a client without a token, or another user of the machine, does to the gateway."""

import hashlib

import pytest
from click.testing import CliRunner

from effectonce import ContractViolation
from effectonce.cli import main
from effectonce.http.gateway import read_settings
from tests.http.test_gateway_settings import GOOD

EMPTY = f"sha256:{hashlib.sha256(b'').hexdigest()}"


@pytest.mark.parametrize("token", ["", " ", EMPTY, EMPTY.upper().replace("SHA", "sha"), "sha256:", "sha256:abc"])
def test_nobody_is_let_in_without_a_token(token):
    with pytest.raises(ContractViolation, match="is no token"):
        read_settings(None, GOOD | {"tenants": {"tokens": {token: "alice"}}})


# ---------------------------------------------------------------- on the command line

NEEDED = ["--upstream", "http://127.0.0.1:9", "--allow-host", "api.example", "--tenant-header", "x-tenant", "--check"]


@pytest.mark.parametrize("url", ["postgresql://app:hunter2@127.0.0.1:9/effects", "redis://127.0.0.1:9?password=hunter2"])
def test_no_password_of_the_store_is_an_argument(url):
    said = CliRunner().invoke(main, ["gateway", *NEEDED, "--store", url])

    assert said.exit_code == 2
    assert "--store holds a password" in said.output
    assert "hunter2" not in said.output


def test_the_store_may_be_named_by_the_environment(tmp_path):
    config = tmp_path / "gateway.toml"
    config.write_text('store = "file://x"\n')
    more = {"environment": [], "file": ["--config", str(config)], "option": ["--config", str(config), "--store", "option://x"]}

    for named, arguments in more.items():
        said = CliRunner().invoke(main, ["gateway", *NEEDED, *arguments], env={"EFFECTONCE_STORE": "environment://x"})
        assert (said.exit_code, f"{named}://" in said.output) == (2, True), said.output
