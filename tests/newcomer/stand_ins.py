"""What pages call `bank`, `slow_bank` and `unlucky_bank`: clients that a reader has already. Behind
each is a real bank, in a process of its own.
"""


class HonestBank:
    """It honours keys."""

    def __init__(self, process):
        self.process = process

    def refund(self, payment_id, amount_minor, idempotency_key):
        return self.process.pay(payment_id, amount_minor, key=idempotency_key)


class SlowBank:
    """It pays, and its answer is lost."""

    def __init__(self, process):
        self.process = process

    def pay(self, invoice):
        return self.process.pay(invoice, 1, fault="lose-answer")["receipt"]

    def find(self, invoice):
        found = self.process.find(invoice)
        return found and found["receipt"]


class UnluckyBank(HonestBank):
    """It pays, and loses its first answer about a payment."""

    def __init__(self, process):
        super().__init__(process)
        self.port, self.asked = process.port, set()

    def refund(self, payment_id, idempotency_key=None):
        fault = None if payment_id in self.asked else "lose-answer"
        self.asked.add(payment_id)
        return self.process.pay(payment_id, 1_400_000, key=idempotency_key, fault=fault)["receipt"]

    def effects(self, payment_id):
        return sum(entry["payment_id"] == payment_id for entry in self.process.ledger())
