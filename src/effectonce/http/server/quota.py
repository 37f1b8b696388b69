"""How much a tenant may ask for: new keys, and bytes, in so much time.

Each is a bucket that begins full and fills evenly. A request whose key is not known yet takes
one key, the bytes of its body, and the bytes of the response that is kept; if there are too few,
it is refused before anything is claimed. A repeat takes nothing. The buckets are those of this
process. That of the tenant that was seen longest ago is forgotten where there are too many: it
begins full again.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from effectonce._validate import numbers, whole
from effectonce.errors import ContractViolation

TENANTS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """At most so many new *keys* and *bytes* per *per_s*, tenant and process. None: no limit."""

    keys: int | None = None
    bytes: int | None = None
    per_s: float = 3600.0

    def __post_init__(self) -> None:
        both = {"keys": self.keys, "bytes": self.bytes}
        given = {name: value for name, value in both.items() if value is not None}
        whole(**given)
        numbers(per_s=self.per_s)
        if not given:
            why = "Quota(): give keys, bytes or both; without them, leave the quota out"
            raise ContractViolation(why)
        if min(given.values()) < 1 or not 0 < self.per_s < inf:
            raise ContractViolation(f"{self}: a quota allows something, in some time")


class _Bucket:
    """It may be overdrawn by what is only known afterwards, and pays that off first."""

    __slots__ = ("at", "capacity", "level", "per_second")

    def __init__(self, capacity: float, per_s: float, now: float) -> None:
        self.capacity, self.per_second = capacity, capacity / per_s
        self.level, self.at = capacity, now

    def fill(self, now: float) -> None:
        self.level = min(self.capacity, self.level + (now - self.at) * self.per_second)
        self.at = now

    def lacks_s(self, amount: float) -> float:
        """How long until there is so much; a full bucket is enough for anything."""
        return max(0.0, min(amount, self.capacity) - self.level) / self.per_second


class Meter:
    """What each tenant has left."""

    def __init__(self, quota: Quota, clock: Callable[[], float] = time.monotonic) -> None:
        self._quota, self._clock = quota, clock
        self._tenants: OrderedDict[str, tuple[_Bucket | None, _Bucket | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tenants)

    # as the quota has it
    def take(self, tenant: str, *, keys: int, bytes: int) -> float:  # noqa: A002
        """0: it is taken. Otherwise nothing is, and there is enough in so many seconds."""
        buckets = self._buckets(tenant)
        wait_s = max(
            bucket.lacks_s(amount)
            for bucket, amount in zip(buckets, (keys, bytes), strict=True)
            if bucket is not None
        )
        if wait_s == 0:
            self.add(tenant, keys=-keys, bytes=-bytes)
        return wait_s

    def add(self, tenant: str, *, keys: int = 0, bytes: int = 0) -> None:  # noqa: A002
        """Give back what was not used, or take what is only known afterwards."""
        for bucket, amount in zip(self._buckets(tenant), (keys, bytes), strict=True):
            if bucket is not None:
                bucket.level = min(bucket.capacity, bucket.level + amount)

    def _buckets(self, tenant: str) -> tuple[_Bucket | None, _Bucket | None]:
        now, quota, known = self._clock(), self._quota, self._tenants.get(tenant)
        if known is None:
            keys, size = (
                None if most is None else _Bucket(most, quota.per_s, now)
                for most in (quota.keys, quota.bytes)
            )
            known = self._tenants[tenant] = keys, size
            if len(self._tenants) > TENANTS_MAX:
                self._tenants.popitem(last=False)
        self._tenants.move_to_end(tenant)
        for bucket in known:
            if bucket is not None:
                bucket.fill(now)
        return known


class Spending:
    """What a request with a new key takes: a key and its bytes, given back if there is no claim."""

    __slots__ = ("_announced", "_counted", "_meter", "_tenant")

    def __init__(self, meter: Meter, tenant: str, announced: int) -> None:
        self._meter, self._tenant, self._announced, self._counted = meter, tenant, announced, False

    def count_body(self, size: int) -> float:
        """The body is here. 0: all is taken; otherwise the seconds until there is enough."""
        wait_s = self._meter.take(self._tenant, keys=0, bytes=max(0, size - self._announced))
        self._counted = wait_s == 0
        return wait_s

    def count_kept(self, size: int) -> None:
        self._meter.add(self._tenant, bytes=-size)

    def close(self) -> None:
        if not self._counted:
            self._meter.add(self._tenant, keys=1, bytes=self._announced)
