"""`effectonce serve`, as a process of its own."""

import os
import re
import signal
import subprocess
import sys

import httpx
import pytest

from tests.cli.desk import ROOT, environment
from tests.server.serving import filled, serving


@pytest.fixture
def desk(tmp_path):
    return filled(tmp_path)


def test_it_prints_a_link_that_works_once_and_then_the_next(desk):
    with serving(desk) as (process, link), httpx.Client() as browser, httpx.Client() as late:
        where = link.partition("?")[0]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", where)

        assert browser.get(where).status_code == 401
        assert browser.get(link, follow_redirects=True).status_code == 200
        assert "Overview" in browser.get(where).text
        assert late.get(link, follow_redirects=True).status_code == 401
        assert late.get(process.stdout.readline().strip(), follow_redirects=True).status_code == 200


def test_whoever_read_the_link_may_stop_reading(desk):
    with serving(desk) as (process, link), httpx.Client() as browser:
        process.stdout.close()

        assert browser.get(link, follow_redirects=True).status_code == 200
        process.stdout = None


def test_it_is_read_only_unless_it_is_told_otherwise(desk):
    with serving(desk) as (_, link), httpx.Client(follow_redirects=True) as browser:
        where = link.partition("?")[0]
        doubt = re.search(r"/effects/(eff_\w+)", browser.get(link).text)[1]
        form = {"reason": "x", "seen": "in_doubt-1"}

        answer = browser.post(
            f"{where}effects/{doubt}/refute", data=form, headers={"origin": where.rstrip("/")}
        )

        assert answer.status_code == 403
        assert "read-only" in answer.text


def test_with_actions_and_an_app_letters_are_redriven(desk):
    arguments = ("--allow-actions", "--by", "ada", "--app", "house:guard")
    with serving(desk, *arguments) as (_, link), httpx.Client(follow_redirects=True) as browser:
        where = link.partition("?")[0]
        browser.get(link)

        origin = {"origin": where.rstrip("/")}
        answer = browser.post(
            f"{where}letters/redrive?tool=_ship", data={"reason": "it is back"}, headers=origin
        )

        assert "1 done." in answer.text
    assert desk.json("status")["given_up"] == 0


def test_decisions_through_a_store_alone_are_told_to_miss_the_audit(desk):
    with serving(desk, "--allow-actions", "--by", "ada") as (process, link):
        httpx.get(link)  # it runs: before, a signal might strike where Python drops it
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]

    assert process.returncode == 0
    assert "on the record, and not in the audit. With --app" in said


def test_a_function_of_yours_says_who_may_look(desk):
    with (
        serving(desk, "--access", "house:access", first="stderr") as (_, said),
        httpx.Client() as browser,
    ):
        where = said.removeprefix("Listening on ")

        assert browser.get(where).status_code == 403
        assert browser.get(where, headers={"x-user": "eve"}).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "0.0.0.0:0"], "--access MODULE:FUNCTION"),
        (["--listen", "0.0.0.0:0", "--access", "house:access"], "--allow-host"),
        (["--access", "house:access", "--allow-actions"], "leave out --allow-actions"),
        (["--access", "house:access", "--tenant", "t"], "Access(tenant=...)"),
        (["--access", "house:nothing"], "has no attribute 'nothing'"),
        (["--access", "house:guard"], "is a Guard, not a function"),
        (["--keyfile", "house.py"], "--keyfile needs --certfile"),
        (["--listen", "8642"], "write HOST:PORT"),
    ],
)
def test_what_would_let_strangers_in_is_refused(desk, arguments, said):
    done = subprocess.run(
        [sys.executable, "-m", "effectonce.cli", "serve", *arguments],
        cwd=desk.folder,
        env=environment(EFFECTONCE_STORE=desk.url, SERVED=desk.url),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 2
    assert said in done.stderr


def test_a_port_that_is_taken_is_told(desk):
    with serving(desk) as (_, link):
        where = link.partition("?")[0].removeprefix("http://").rstrip("/")
        done = desk.run("serve", "--listen", where)

    assert done.returncode == 1
    assert "cannot be listened on: Address already in use" in done.stderr


def test_root_is_nobody_in_particular(desk):
    done = desk.run("serve", "--allow-actions", LOGNAME="root", USER="root", SUDO_USER="")

    assert done.returncode == 2
    assert "--by NAME" in done.stderr


def test_without_what_it_needs_it_says_how_to_install_it(desk, tmp_path):
    for missing in ("jinja2", "python_multipart"):
        folder = tmp_path / f"without {missing}"
        folder.mkdir()
        (folder / f"{missing}.py").write_text(
            f"raise ImportError('No module named {missing}', name={missing!r})"
        )
        paths = os.pathsep.join([str(folder), str(ROOT / "src"), str(ROOT)])

        done = desk.run("serve", PYTHONPATH=paths)

        assert done.returncode == 1
        assert (
            f"The dashboard needs {missing}. Install what it needs: pip install"
            " 'effectonce[server]'" in done.stderr
        )
