"""`oncebench run` on real programs, in Python and Node, that are really killed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from oncebench import syscalls
from oncebench.run import NotComparable, Options, Runner, matches, same_each_time
from oncebench.syscalls import Point, points_of

EXAMPLES = Path(__file__).parent.parent / "examples"


def trials(folder, *command, **options):
    runner = Runner(Options(command=command, folder=folder, **options), say=lambda _: None)
    return list(runner.trials()), runner


@pytest.fixture
def program(tmp_path):
    def write(code):
        (tmp_path / "agent.py").write_text(code)
        return tmp_path

    return write


SEND = """
import json, os, urllib.request
def send(order):
    body = json.dumps({"order": order}).encode()
    urllib.request.urlopen(urllib.request.Request(os.environ["ONCEBENCH_URL"] + "/pay", body), timeout=2).read()
"""


def test_a_naive_agent_pays_twice(tmp_path):
    shutil.copy(EXAMPLES / "naive_agent.py", tmp_path)

    found, _ = trials(tmp_path, sys.executable, "naive_agent.py", only="kill:recvfrom:1")

    assert [t.verdict for t in found] == ["duplicate"]
    assert found[0].ends == ("was killed", "ended with code 0")
    assert '"o1"' in next(name for name, (counted, _) in found[0].effects.items() if counted == 2)


@pytest.mark.long  # as for Python, above
def test_a_naive_agent_for_node_pays_twice(tmp_path):
    code = (EXAMPLES / "naive_agent.js").read_text().replace('["o1", "o2", "o3"]', '["o1"]')
    (tmp_path / "naive_agent.js").write_text(code)

    found, runner = trials(tmp_path, "node", "naive_agent.js", points_max=4)

    assert runner.notice is None
    kills = {t.where: t.verdict for t in found if t.where.startswith("kill:")}
    assert "duplicate" in kills.values(), kills
    assert "duplicate" in {t.verdict for t in found if t.where == "wire:reset after:1"}


def test_an_agent_that_notes_first_loses(program):
    folder = program(
        SEND + "import pathlib\nif not pathlib.Path('noted').exists():\n"
        "    pathlib.Path('noted').write_text('x')\n    send('o1')\n"
    )

    found, _ = trials(folder, sys.executable, "agent.py", only="kill:sendto:1")

    assert [t.verdict for t in found] == ["lost"]


def test_an_agent_that_never_ends_well_is_stuck(program):
    folder = program(
        SEND + "import pathlib, sys\nif pathlib.Path('begun').exists():\n"
        "    sys.exit('in doubt: a person has to look')\n"
        "pathlib.Path('begun').write_text('x')\nsend('o1')\n"
    )

    found, _ = trials(folder, sys.executable, "agent.py", only="wire:reset after:1")

    assert [t.verdict for t in found] == ["stuck"]
    assert found[0].last_output == "in doubt: a person has to look"


def test_what_differs_by_itself_is_not_compared(program):
    folder = program(SEND + "import uuid\nsend(str(uuid.uuid4()))\n")

    found, _ = trials(folder, sys.executable, "agent.py", only="wire:500 after:1")

    assert found[0].verdict == "duplicate"
    assert list(found[0].effects) == ['POST /pay {"order": "*"}']


def test_an_agent_that_does_other_things_each_time_cannot_be_judged(program, tmp_path_factory):
    runs = tmp_path_factory.mktemp("elsewhere") / "runs"
    runs.touch()
    count = (
        f"open({str(runs)!r}, 'a').write('x')\nfor n in range(len(open({str(runs)!r}).read())):\n"
    )
    folder = program(f"{SEND}{count}    send('o')\n")

    with pytest.raises(NotComparable, match="fixed seed"):
        trials(folder, sys.executable, "agent.py", only="wire:late:1")


def test_an_agent_that_asks_for_nothing_is_told_where_the_service_is(program):
    folder = program("print('hello')")

    with pytest.raises(NotComparable, match="ONCEBENCH_URL"):
        trials(folder, sys.executable, "agent.py")


def test_plain_http_is_led_to_the_service_by_proxy(program):
    folder = program(
        SEND.replace('os.environ["ONCEBENCH_URL"]', '"http://api.example"') + "send('o1')\n"
    )

    found, _ = trials(folder, sys.executable, "agent.py", proxy=True, only="wire:reset after:1")

    assert found[0].verdict == "duplicate"


@pytest.mark.long
def test_a_program_that_cannot_be_traced_gets_the_faults_of_the_wire_alone(program, monkeypatch):
    monkeypatch.setattr(syscalls.shutil, "which", lambda name: None)
    folder = program(SEND + "send('o1')\n")

    found, runner = trials(folder, sys.executable, "agent.py")

    assert all(t.where.startswith("wire:") for t in found)
    assert runner.notice is not None
    assert "apt-get install strace" in runner.notice


def test_points_are_the_sends_receives_and_writes_of_the_run():
    trace = [
        '7  read(3</usr/lib/x.py>, "..."...) = 4',
        '7  sendto(3<TCP:[127.0.0.1:1->127.0.0.1:2]>, "POST /pay"...) = 9',
        '7  recvfrom(3<TCP:[127.0.0.1:1->127.0.0.1:2]>, "HTTP"...) = 9',
        '7  write(1</tmp/x/stdout>, "hi", 2) = 2',
        '7  write(4</srv/agent/done.txt>, "o1", 2) = 2',
        "8  fsync(4</srv/agent/done.txt>) = 0",
    ]

    assert [str(p) for p in points_of(trace)] == [
        "kill:sendto:1",
        "EPIPE:sendto:1",
        "kill:recvfrom:1",
        "ECONNRESET:recvfrom:1",
        "kill:write:2",
        "kill:fsync:1",
    ]


def test_a_loop_that_wakes_itself_is_not_hit_but_a_byte_to_another_is():
    wakes = '7  sendto(5<UNIX-STREAM:[11->12]>, "\\0", 1, 0, NULL, 0) = 1'
    asks = '7  sendto(5<UNIX-STREAM:[11->12]>, "Q", 1, 0, NULL, 0) = 1'

    assert points_of([wakes]) == []
    assert [str(p) for p in points_of([wakes, asks])] == ["kill:sendto:2"]
    assert Point("kill", "sendto", 1).hit_in([wakes, asks]) is None
    assert Point("kill", "sendto", 2).hit_in([wakes, asks])


def test_what_was_hit_at_a_wake_up_or_not_at_all_is_hit_elsewhere_next_time():
    wakes = ['7  write(5<anon_inode:[eventfd]>, "x", 8) = 8'] * 9
    notes = '7  write(4</srv/agent/done.txt>, "o1", 2) = 2'

    assert Point("kill", "write", 7).instead(wakes) == Point("kill", "write", 8)
    assert Point("kill", "write", 14).instead([*wakes, notes]) == Point("kill", "write", 10)
    assert Point("kill", "write", 14).instead(wakes) is None


@pytest.mark.parametrize(
    ("later", "verdict"),
    [(2, "duplicate"), (6, "duplicate"), pytest.param(90, "missed", marks=pytest.mark.long)],
)
def test_threads_that_wake_each_other_at_other_times_are_no_excuse(
    program, tmp_path_factory, later, verdict
):
    """Its note is its fifth write while it is watched, and then it writes more often, or less."""
    runs = tmp_path_factory.mktemp("runs")
    folder = program(
        f"{SEND}run = len(os.listdir({str(runs)!r}))\nos.mkdir(f'{runs}/{{run}}')\n"
        "if not open('done.txt', 'a+').tell():\n    send('o1')\n    wake = os.pipe()[1]\n"
        f"    for _ in range(4 if run < 2 else {later}): os.write(wake, b'x')\n"
        "    open('done.txt', 'a').write('o1')\n"
    )

    found, _ = trials(folder, sys.executable, "agent.py", only="kill:write:5")

    assert [t.verdict for t in found] == [verdict]


def test_a_point_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="is not kill"):
        Point.parse("explode:read:1")


def test_patterns():
    pattern = same_each_time({"a": 1, "b": [1, 2]}, {"a": 1, "b": [1, 3]})

    assert pattern == {"a": 1, "b": [1, "*"]}
    assert matches(pattern, {"a": 1, "b": [1, 9]})
    assert not matches(pattern, {"a": 2, "b": [1, 9]})
    assert not matches(pattern, {"a": 1})


def test_the_command_says_what_it_found_and_how_to_see_it_again(tmp_path):
    shutil.copy(EXAMPLES / "naive_agent.py", tmp_path)
    command = [sys.executable, "-m", "oncebench", "run", "--only", "wire:reset after:2"]

    done = subprocess.run(
        [*command, "--", sys.executable, "naive_agent.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    assert "landed" not in done.stderr
    assert 'D  POST /refunds {"order": "o2", "amount": 100}: 2 times, 1 is right' in done.stdout
    assert (
        f"again: oncebench run --only 'wire:reset after:2' -- {sys.executable} naive_agent.py"
        in done.stdout
    )


@pytest.mark.long
def test_the_line_that_repeats_a_trial_runs_as_it_is_printed(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "oncebench").write_text(
        f'#!/bin/sh\nexec {sys.executable} -m oncebench "$@"\n'
    )
    (tmp_path / "bin" / "oncebench").chmod(0o755)
    folder = tmp_path / "the agent's"
    folder.mkdir()
    code = SEND + "import sys\nassert sys.argv[1] == 'a {b}'\nsend(open('seed file').read())\n"
    (folder / "agent.py").write_text(code)
    asked = ["run", "--points", "1", "--restarts", "2", "--within-s", "20", "--seed", "3"]
    asked += ["--before", "printf 'o 1' > 'seed file'", "--ignores-keys", "--url-env", "URL"]
    environment = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}

    def shown(command, **more):
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            **more,
        )
        assert done.returncode == 1, done
        return done.stdout.splitlines()

    first = shown(["oncebench", *asked, "--", sys.executable, "agent.py", "a {b}"])
    start = next(n for n, line in enumerate(first) if "wire:reset after:1" in line)
    line = first[start + 1].removeprefix("   again: ")

    assert shown(["sh", "-c", line])[1:-1] == first[start - 1 : start + 2]
    assert "--restarts 2 --within-s 20 --seed 3" in line


def test_the_command_without_a_program_says_what_is_missing(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "oncebench", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "oncebench run -- python my_agent.py" in done.stderr


def test_json_has_a_line_for_each_trial(tmp_path):
    shutil.copy(EXAMPLES / "naive_agent.py", tmp_path)
    command = [sys.executable, "-m", "oncebench", "run", "--json", "--only", "wire:twice:1"]

    done = subprocess.run(
        [*command, "--", sys.executable, "naive_agent.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert [json.loads(line)["verdict"] for line in done.stdout.splitlines()] == ["duplicate"]
