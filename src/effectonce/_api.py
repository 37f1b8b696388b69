"""Every public name, and where it lives. `effectonce` imports this file when its first name is
asked for.
"""

from effectonce._core.backoff import Jitter
from effectonce._core.breaker.machine import Phase
from effectonce._core.classification.classify import (
    Bucket,
    Certainty,
    Rule,
    Scope,
    Verdict,
    classify,
)
from effectonce._core.classification.transient import transient
from effectonce._core.decisions import Action
from effectonce._core.effect_ref import EffectRef
from effectonce._core.guarantees import Capability, Kind
from effectonce._core.keys import Explanation, Stable, content_key
from effectonce._core.ops import CannotTell, Found, NotFound, Swept
from effectonce._core.record import Record, State
from effectonce._runtime.step import Delivered
from effectonce._tools.context import Tool
from effectonce.effect import Effect, current_effect
from effectonce.errors import (
    ApprovalNeeded,
    Cancelled,
    CircuitOpen,
    CodeChanged,
    Conflict,
    ContractViolation,
    EffectOnceError,
    Expired,
    GaveUp,
    InDoubt,
    InFlight,
    LeaseLost,
    LimitReached,
    NotApproved,
    NotSent,
    OutOfOrder,
    PartialSuccess,
    PreconditionFailed,
    Rejected,
    ReplayedFailure,
    ResultUnavailable,
    StepFailed,
    StoreUnavailable,
    ToolPaused,
)
from effectonce.guard import Guard
from effectonce.health import Health
from effectonce.outcome import Outcome
from effectonce.policy import Budget, Contract, Downstream, Retry, TimeWindow
from effectonce.policy.permissions import Allowance, Approval
from effectonce.recovery.in_doubt import Reconciled
from effectonce.recovery.pace import ReconcilePace
from effectonce.retries.breaker_policy import Breaker
from effectonce.retries.budget import RetryBudget
from effectonce.retries.circuit import Circuit, breaker
from effectonce.retries.circuits import Circuits
from effectonce.retries.permit import CircuitStats, Permit
from effectonce.retries.retry import Advice, Attempt, Retrier, advise, retry
from effectonce.retries.turn import TurnBudget
from effectonce.stores.base import Finding
from effectonce.stores.keyring import Keyring

__all__ = [
    "Action",
    "Advice",
    "Allowance",
    "Approval",
    "ApprovalNeeded",
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
    "LimitReached",
    "NotApproved",
    "NotFound",
    "NotSent",
    "OutOfOrder",
    "Outcome",
    "PartialSuccess",
    "Permit",
    "Phase",
    "PreconditionFailed",
    "ReconcilePace",
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
    "ToolPaused",
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
