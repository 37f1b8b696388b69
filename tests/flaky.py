"""A store that fails on request, before or after it has done what it was asked: a lost request
or a lost acknowledgement.
"""

from effectonce import StoreUnavailable
from effectonce.stores.memory import MemoryStore


class FlakyStore:
    def __init__(self, *, clock=None):
        self.inner = MemoryStore(clock=clock) if clock else MemoryStore()
        self.capabilities = self.inner.capabilities
        self.faults = []  # (op type, "lost" | "unacknowledged"), each used once
        self.log = []

    def fail(self, op_type, how="lost", times=1):
        self.faults += [(op_type, how)] * times

    def apply(self, op):
        self.log.append(type(op).__name__)
        fault = next((f for f in self.faults if isinstance(op, f[0])), None)
        if fault is not None:
            self.faults.remove(fault)
            if fault[1] == "unacknowledged":
                self.inner.apply(op)
            raise StoreUnavailable("the store did not answer")
        return self.inner.apply(op)

    async def aapply(self, op):
        return self.apply(op)

    def close(self):
        self.inner.close()
