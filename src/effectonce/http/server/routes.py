"""Which requests are effects, and on which terms."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from effectonce._core.guarantees import CapabilityName, Kind, KindName
from effectonce._validate import flags
from effectonce.errors import ContractViolation
from effectonce.policy import Downstream, kind_of

SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"})
METHODS = ("POST", "PATCH")
CHANGING = ("POST", "PATCH", "PUT", "DELETE")
_PLACEHOLDER = re.compile(r"\\{\w+\\}")


@dataclass(frozen=True, slots=True)
class Route:
    """Requests that are effects: a path, in which `{name}` stands for one segment and `*` at the
    end for anything, and methods.

    A key is honoured for *window*, and *required* or only accepted. *include* or *exclude*
    choose the members of a JSON body that must match when a key comes again. *kind* and
    *downstream* say what running twice would do, and what help there is, as for a tool.
    """

    path: str
    methods: Sequence[str] = METHODS
    required: bool | None = None  # None: as the profile has it
    kind: KindName | Kind = "write"
    downstream: CapabilityName | Downstream | None = None  # None: as the profile has it
    window: float | timedelta | None = None  # None: as the profile has it
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not str(self.path).startswith(("/", "*")) or "*" in self.path[:-1]:
            raise ContractViolation(
                f"Route({self.path!r}): a path starts with / and has * only at its end"
            )
        # it would be taken as it stands, and fit no request
        if set("{}") & set(re.sub(r"\{\w+\}", "", self.path)):
            raise ContractViolation(
                f"Route({self.path!r}): a segment that varies is written {{name}}, without a type"
            )
        if isinstance(self.methods, str):
            raise ContractViolation(
                f"Route({self.path!r}, methods={self.methods!r}): give a list,"
                f" methods=[{self.methods!r}]"
            )
        if self.required is not None:
            flags(required=self.required)
        self._refuse_misspelt()
        safe = sorted(SAFE & {method.upper() for method in self.methods})
        if safe or not self.methods:
            raise ContractViolation(
                f"Route({self.path!r}, methods={self.methods!r}): name methods that change"
                f" something. {', '.join(sorted(SAFE))} are repeated without a key."
            )
        if isinstance(self.include, str) or isinstance(self.exclude, str):
            raise ContractViolation(
                f"Route({self.path!r}): include and exclude are lists of members, such as"
                " ['payment.amount']"
            )
        if kind_of(self.kind) is Kind.READ:
            raise ContractViolation(
                f"Route({self.path!r}, kind='read'): a read has no effect, and needs no key"
            )

    def _refuse_misspelt(self) -> None:
        """A misspelt method would leave its requests unprotected. Unusual methods are fine."""
        for method in self.methods:
            near = difflib.get_close_matches(str(method).upper(), CHANGING, 1, 0.75)
            if near and near[0] != str(method).upper():
                raise ContractViolation(
                    f"Route({self.path!r}, methods={self.methods!r}): did you mean {near[0]!r}?"
                )

    def pattern(self) -> re.Pattern[str]:
        """What the path of a request has to match."""
        exact = _PLACEHOLDER.sub("[^/]+", re.escape(self.path.removesuffix("*")))
        return re.compile(exact + (".*" if self.path.endswith("*") else ""), re.DOTALL)
