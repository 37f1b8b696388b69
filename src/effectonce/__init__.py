"""effectonce: your agent may retry anything; the effect lands once, or you are told that nobody can know."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from effectonce._names import *

__all__ = [
    "Action",
    "Advice",
    "Attempt",
    "Breaker",
    "Bucket",
    "Budget",
    "Cancelled",
    "CannotTell",
    "Capability",
    "Certainty",
    "Circuit",
    "CircuitOpen",
    "CircuitStats",
    "Circuits",
    "CodeChanged",
    "Conflict",
    "Contract",
    "ContractViolation",
    "Delivered",
    "Downstream",
    "Effect",
    "EffectOnceError",
    "EffectRef",
    "Expired",
    "Explanation",
    "Finding",
    "Found",
    "GaveUp",
    "Guard",
    "Health",
    "InDoubt",
    "InFlight",
    "Jitter",
    "Keyring",
    "Kind",
    "LeaseLost",
    "NotFound",
    "NotSent",
    "OutOfOrder",
    "Outcome",
    "PartialSuccess",
    "Permit",
    "Phase",
    "Reconciled",
    "Record",
    "Rejected",
    "ReplayedFailure",
    "ResultUnavailable",
    "Retrier",
    "Retry",
    "RetryBudget",
    "Rule",
    "Scope",
    "Stable",
    "State",
    "StepFailed",
    "StoreUnavailable",
    "Swept",
    "TimeWindow",
    "Tool",
    "TurnBudget",
    "Verdict",
    "advise",
    "breaker",
    "classify",
    "content_key",
    "current_effect",
    "retry",
    "transient",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The first name that is asked for brings all of them. `effectonce --help` asks for none, and is there at once."""
    if not name.startswith("__"):
        names = importlib.import_module("effectonce._names")
        globals().update({public: getattr(names, public) for public in __all__})
        if name in globals():  # modules are among them: whoever imports one finds it here
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
