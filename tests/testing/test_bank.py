"""The bank has the last word in other tests, so its own promises are tested here."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.servers._process import until

from effectonce import Rejected
from effectonce.testing.bank import Bank, BankServer, Book, Teller, find, pay, read_ledger

WITHIN_S = 20


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    with Bank(tmp_path_factory.mktemp("bank") / "ledger", honours_keys=True) as bank:
        yield bank


def lines(bank, payment_id):
    return [entry for entry in bank.ledger() if entry["payment_id"] == payment_id]


def test_a_payment_is_one_line_in_the_ledger(bank):
    answer = pay(bank.port, "pay_1", 1_400_000, key="k1")

    assert lines(bank, "pay_1") == [
        {
            "payment_id": "pay_1",
            "amount_minor": 1_400_000,
            "key": "k1",
            "receipt": answer["receipt"],
        },
    ]


def test_the_same_key_is_the_same_payment(bank):
    first = bank.pay("pay_2", 5, key="k2")
    second = bank.pay("pay_2", 5, key="k2")

    assert first == second
    assert len(lines(bank, "pay_2")) == 1


def test_the_same_key_at_the_same_moment_is_the_same_payment(bank):
    together = threading.Barrier(8)

    def customer(_):
        with Teller(bank.port) as teller:
            together.wait(WITHIN_S)
            return teller.pay("pay_3", 5, key="k3")["receipt"]

    with ThreadPoolExecutor(8) as pool:
        receipts = set(pool.map(customer, range(8)))

    assert len(receipts) == 1
    assert len(lines(bank, "pay_3")) == 1


def test_without_a_key_every_request_is_a_payment(bank):
    receipts = {bank.pay("pay_4", 5)["receipt"] for _ in range(3)}

    assert len(receipts) == len(lines(bank, "pay_4")) == 3


def test_a_bank_that_does_not_honour_keys_pays_twice(tmp_path):
    with Bank(tmp_path / "ledger") as bank:
        bank.pay("pay_5", 5, key="k5")
        bank.pay("pay_5", 5, key="k5")

        assert [entry["key"] for entry in bank.ledger()] == ["k5", "k5"]


def test_a_lost_answer_is_a_payment(bank):
    with pytest.raises(ConnectionError):
        bank.pay("pay_6", 5, fault="lose-answer")

    assert len(lines(bank, "pay_6")) == 1


def test_a_late_answer_is_a_payment(bank):
    with pytest.raises(TimeoutError):
        bank.pay("pay_7", 5, fault="answer-late:30", timeout_s=0.2)

    until(lambda: len(lines(bank, "pay_7")) == 1, "the payment")


def test_a_slow_answer_arrives(bank):
    assert (
        bank.pay("pay_8", 5, fault="answer-late:0.05")["receipt"]
        == lines(bank, "pay_8")[0]["receipt"]
    )


def test_a_refusal_is_no_payment(bank):
    with pytest.raises(Rejected, match="refuses pay_9"):
        bank.pay("pay_9", 5, fault="refuse")

    assert lines(bank, "pay_9") == []


def test_silence_is_no_payment(bank):
    with pytest.raises(ConnectionError):
        bank.pay("pay_10", 5, fault="silent")

    assert lines(bank, "pay_10") == []


def test_nonsense_is_no_payment(bank):
    before = bank.ledger()

    with pytest.raises(Rejected, match="amount_minor"):
        bank.pay("pay_11", "a lot")

    assert bank.ledger() == before


@pytest.mark.parametrize("fault", ["lose_answer", "answer-late", "answer-late:soon", "refuses"])
def test_a_fault_that_there_is_not_is_told_and_no_payment(bank, fault):
    with pytest.raises(Rejected, match="there is no fault"):
        bank.pay("pay_slip", 5, fault=fault)

    assert lines(bank, "pay_slip") == []


def test_the_bank_can_be_asked(bank):
    receipt = bank.pay("order/12 ₹", 5)["receipt"]
    bank.pay("order/12 ₹", 5)

    assert bank.find("order/12 ₹") == {"effects": 2, "receipt": receipt}
    assert find(bank.port, "never paid") is None


def test_a_connection_is_good_for_the_next_payment_after_a_fault(bank):
    with Teller(bank.port, timeout_s=5) as teller:
        for fault in ("lose-answer", "silent"):
            with pytest.raises(ConnectionError):
                teller.pay("pay_13", 5, fault=fault)

        assert teller.pay("pay_13", 5)["payment_id"] == "pay_13"


def test_the_ledger_is_on_the_disk_before_the_answer(tmp_path, monkeypatch):
    ledger = tmp_path / "ledger"
    really_sync, synced = os.fsync, []
    monkeypatch.setattr(
        os, "fsync", lambda file: (really_sync(file), synced.append(ledger.read_bytes()))
    )
    with serving(ledger) as port:
        answer = pay(port, "pay_14", 5)

        assert json.loads(synced[0])["receipt"] == answer["receipt"]


def test_what_could_not_be_written_to_the_disk_gets_no_answer(tmp_path, monkeypatch, capfd):
    def broken_disk(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken_disk)
    with serving(tmp_path / "ledger") as port, pytest.raises(ConnectionError):
        pay(port, "pay_15", 5)

    assert "Input/output error" in capfd.readouterr().err


def test_a_bank_remembers_across_restarts(tmp_path):
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        before = bank.pay("pay_16", 5, key="k16")
    with Bank(tmp_path / "ledger", honours_keys=True) as bank:
        after = bank.pay("pay_16", 5, key="k16")

        assert after == before
        assert bank.pay("pay_17", 5)["receipt"] == "rcpt_2"


def test_the_ledger_of_a_bank_that_is_gone_can_be_read(tmp_path):
    with Bank(tmp_path / "ledger") as bank:
        bank.pay("pay_18", 5)

    assert len(bank.ledger()) == 1
    assert read_ledger(tmp_path / "another") == []


def test_the_bank_listens_on_loopback_only(tmp_path):
    with BankServer(Book(tmp_path / "ledger")) as server:
        assert server.server_address[0] == "127.0.0.1"
        server.book.close()


def test_the_bank_ends_with_its_parent(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "ledger")], stdout=subprocess.PIPE, text=True
    )
    bank_pid = int(parent.stdout.readline())
    bank = os.pidfd_open(bank_pid)

    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()

    assert has_ended(bank)


def test_the_bank_ends_on_sigterm(tmp_path):
    with Bank(tmp_path / "ledger") as bank:
        process = os.pidfd_open(bank.pid)
        os.kill(bank.pid, signal.SIGTERM)

        assert has_ended(process)


def test_a_bank_that_cannot_start_says_so(tmp_path, capfd):
    with (
        pytest.raises(RuntimeError, match="did not start"),
        Bank(tmp_path / "no folder" / "ledger"),
    ):
        pass

    assert "FileNotFoundError" in capfd.readouterr().err


PARENT = """
import signal, sys
from effectonce.testing.bank import Bank
with Bank(sys.argv[1]) as bank:
    print(bank.pid, flush=True)
    signal.pause()
"""


def has_ended(process):
    """Wait for the end of a process that need not be our child. A pidfd is readable once it has
    ended.
    """
    try:
        return bool(select.select([process], [], [], WITHIN_S)[0])
    finally:
        os.close(process)


class serving:  # noqa: N801  # it reads as a verb
    """A bank's counter in this process, so that the disk can be broken."""

    def __init__(self, ledger):
        self.server = BankServer(Book(ledger))
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))

    def __enter__(self):
        self.thread.start()
        return self.server.server_port

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        self.server.book.close()
