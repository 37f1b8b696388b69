"""Many callers, one effect each key; the bank counts."""

import json
import subprocess
import sys
from collections import Counter

import pytest

from effectonce.testing.bank import Bank


def hammer(tmp_path, url, *, processes, keys, callers):
    with Bank(tmp_path / "ledger") as bank:
        command = [
            sys.executable,
            "-m",
            "tests.crash.hammer",
            url,
            str(bank.port),
            str(keys),
            str(callers),
        ]
        crowd = [
            subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE)
            for seed in range(processes)
        ]
        told = [json.loads(process.communicate()[0]) for process in crowd]
        assert [process.returncode for process in crowd] == [0] * processes
        return Counter(entry["payment_id"] for entry in bank.ledger()), [
            tuple(pair) for report in told for pair in report
        ]


def test_8_processes_of_64_threads_on_one_key_land_one_effect(tmp_path):
    effects, told = hammer(
        tmp_path, f"sqlite:///{tmp_path}/effects.db", processes=8, keys=1, callers=64
    )

    assert effects == {"inv_0": 1}
    assert len(told) == 512
    assert len(set(told)) == 1


@pytest.mark.long
def test_1000_keys_of_50_callers_land_1000_effects(tmp_path):
    effects, told = hammer(
        tmp_path, f"sqlite:///{tmp_path}/effects.db", processes=2, keys=1000, callers=25
    )

    assert len(effects) == 1000
    assert set(effects.values()) == {1}
    assert len(told) == 50_000
    assert len(set(told)) == 1000


@pytest.mark.long
def test_8_processes_of_16_threads_on_one_key_land_one_effect_on_postgres(tmp_path, database):
    effects, told = hammer(tmp_path, database, processes=8, keys=1, callers=16)

    assert effects == {"inv_0": 1}
    assert len(told) == 128
    assert len(set(told)) == 1


def test_100_keys_of_20_callers_land_100_effects_on_postgres(tmp_path, database):
    effects, told = hammer(tmp_path, database, processes=2, keys=100, callers=10)

    assert len(effects) == 100
    assert set(effects.values()) == {1}
    assert len(told) == 2000
    assert len(set(told)) == 100
