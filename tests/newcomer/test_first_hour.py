"""The first hour with the wheel, in a fresh environment without the repository: the README, the
tutorial, how-to pages and the examples do what they say.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.test_docs import Stripe
from tests.tiers import long_except

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PAGES = (
    "README.md",
    "docs/tutorial/first-tool.md",
    "docs/howto/in-doubt.md",
    "docs/howto/use-sqlite.md",
)
# Their frameworks do not install beside the others: make test-frameworks runs them.
ELSEWHERE = {
    "agent_framework_agent",
    "autogen_agent",
    "crewai_crew",
    "google_adk_agent",
    "restate_service",
    "strands_agent",
}


class Fresh:
    """An environment with the wheel, and a folder to work in."""

    def __init__(self, venv, wheel, *programs):
        self.venv, self.wheel = venv, wheel
        self.path = ":".join(map(str, (venv / "bin", *programs, os.environ["PATH"])))

    def run(self, folder, *command, timeout=120, **options):
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("EFFECTONCE_", "PYTHON", "XDG_"))
        }
        clean |= {
            "PATH": self.path,
            "HOME": str(folder),
            "PIP_CACHE_DIR": pip_cache(),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "NO_COLOR": "1",
            "COLUMNS": "100",
        }
        if (
            "PIP_CONFIG_FILE" not in clean
            and (own := Path.home() / ".config/pip/pip.conf").exists()
        ):
            clean["PIP_CONFIG_FILE"] = str(own)  # the HOME of a newcomer is empty
        return subprocess.run(
            command,
            cwd=folder,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            **options,
        )

    def read(self, folder, page, **names):
        """Do what a page says."""
        for file in ("reader.py", "stand_ins.py"):
            shutil.copy(HERE / file, folder / file)
        given = json.dumps(names)
        done = self.run(folder, "python", "reader.py", str(ROOT / page), str(self.wheel), given)
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads(done.stdout.splitlines()[-1])
        assert report["effectonce"].startswith(report["prefix"])
        assert report["blocks"] > 0


def pip_cache():
    asked = [sys.executable, "-m", "pip", "cache", "dir"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", str(folder)], cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def environment(folder, *options):
    subprocess.run([sys.executable, "-m", "venv", *options, str(folder)], check=True)
    return folder


@pytest.fixture(scope="session")
def alone(tmp_path_factory, wheel):
    """The wheel and what it asks for, as pip installs them."""
    return Fresh(environment(tmp_path_factory.mktemp("alone") / "venv"), wheel)


@pytest.fixture(scope="session")
def beside_others(tmp_path_factory, wheel):
    """The wheel beside the packages of the lock, which are not installed a second time."""
    venv = environment(tmp_path_factory.mktemp("others") / "venv", "--without-pip")
    (packages,) = venv.glob("lib/python3*/site-packages")
    # a path in a .pth is searched, and its own .pth files are not read: no editable install
    (packages / "lock.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", str(venv), "install", "--quiet", "--no-index"]
    subprocess.run(
        [*pip, "--no-deps", "--ignore-installed", str(wheel)], check=True, capture_output=True
    )
    own = venv / "bin" / "pip"  # not the one of the programs beside it, which would change the lock
    own.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --python {venv} "$@"\n')
    own.chmod(0o755)
    before = installed_here()
    yield Fresh(venv, wheel, Path(sys.executable).parent)
    assert installed_here() == before


def installed_here():
    """Where the environment of the tests has effectonce from."""
    asked = [sys.executable, "-I", "-c", "import effectonce; print(effectonce.__file__)"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout


@pytest.mark.long  # tests/test_docs.py replays the pages, and the example below runs from the wheel
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says_with_the_wheel_alone(alone, page, tmp_path):
    alone.read(tmp_path, page)


@pytest.mark.long
def test_stripe_in_ten_lines_runs_beside_its_sdk(beside_others, tmp_path):
    with Stripe() as stripe:
        names = {"api_key": "sk_test_1", "addresses": {"api": stripe.url}}
        beside_others.read(tmp_path, "docs/howto/stripe-in-ten-lines.md", **names)

        assert stripe.effects == len(stripe.done) == 2


# ---------------------------------------------------------------- examples

HEADS = {path.stem: path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))}
COMMAND = re.compile(r"^    ((?:python|effectonce|touch) .+)$", re.MULTILINE)
SERVERS = {"django_app", "fastapi_app", "plain_api", "mcp_bank"}  # each ends when it is ended
REFERENCE = "$(effectonce {} list --app examples.{}:guard | cut -f1)"


def commands_of(name):
    """What its head says to do; a person who decides has a name."""
    head = re.match(r'""".*?"""', HEADS[name], re.DOTALL)[0]
    kind = "approve" if "approve yes" in head else "effect"
    for command in COMMAND.findall(head):
        given = command.replace("EFFECT", REFERENCE.format(kind, name))
        yield given + (" --by ada --yes" if "--reason" in given else "")


@pytest.mark.parametrize(
    "name", long_except(["refund_agent"], sorted(HEADS.keys() - ELSEWHERE - SERVERS))
)
def test_an_example_is_saved_and_runs(beside_others, name, tmp_path):
    commands = list(commands_of(name))
    saved = beside_others.run(tmp_path, "effectonce", "examples", name, "--save")

    assert saved.returncode == 0, saved.stderr
    assert commands
    for command in commands:
        done = beside_others.run(tmp_path, "bash", "-c", command)
        killed = "--die" in command and done.returncode in (-9, 137)
        assert done.returncode == 0 or killed, f"{command}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", long_except(["fastapi_app"], ["django_app", "fastapi_app"]))
def test_an_example_that_serves_starts(beside_others, name, tmp_path):
    beside_others.run(tmp_path, "effectonce", "examples", name, "--save")
    (command,) = commands_of(name)

    # from its start to the first line that says where it listens; then it is ended
    served = (
        f"exec 3< <({command} --uds app.sock 2>&1 & echo pid $!; wait); pid=; while read -r line <&3;"
        ' do case "$line" in "pid "*) pid=${line#pid };; *running\\ on*) kill $pid; exit 0;; esac;'
        " done; exit 1"
    )
    done = beside_others.run(tmp_path, "bash", "-c", served)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_the_bank_for_mcp_refunds_and_the_gateway_takes_its_settings(beside_others, tmp_path):
    for name in ("mcp_bank", "mcp_refund", "gateway"):
        beside_others.run(tmp_path, "effectonce", "examples", name, "--save")
    proxied = (
        "effectonce mcp --name bank --store sqlite:///effects.db -- python examples/mcp_bank.py"
    )

    for _ in range(2):
        done = beside_others.run(tmp_path, "bash", "-c", f"{proxied} <examples/mcp_refund.jsonl")
        assert done.returncode == 0, done.stderr
    checked = beside_others.run(
        tmp_path, "effectonce", "gateway", "--config", "examples/gateway.toml", "--check"
    )

    assert (tmp_path / "refunds.log").read_text().count("\n") == 1
    assert checked.returncode == 0, checked.stderr


@pytest.mark.long
def test_an_api_in_the_standard_library_alone_starts(alone, tmp_path):
    alone.run(tmp_path, "python", "-m", "pip", "install", "--quiet", str(alone.wheel))
    alone.run(tmp_path, "effectonce", "examples", "plain_api", "--save")

    served = (
        "exec 3< <(exec python -u examples/plain_api.py); read -r port <&3; echo $port; kill $!"
    )
    done = alone.run(tmp_path, "bash", "-c", served)

    assert int(done.stdout) > 0, done.stderr
