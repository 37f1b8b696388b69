"""Every public name, listed: adding one is a visible change."""

import inspect

import effectonce
from effectonce import errors

NAMES = """
    StepFailed CodeChanged Cancelled Action Advice Allowance Approval ApprovalNeeded Attempt
    Breaker Bucket Budget CannotTell Capability Certainty Circuit CircuitOpen CircuitStats
    Circuits Conflict Contract ContractViolation Delivered Downstream Effect EffectOnceError
    EffectRef Expired Explanation Finding Found GaveUp Guard Health InDoubt InFlight Jitter
    Keyring Kind LeaseLost LimitReached NotApproved NotFound NotSent OutOfOrder Outcome
    PartialSuccess Permit Phase PreconditionFailed ReconcilePace Reconciled Record Rejected
    ReplayedFailure ResultUnavailable Retrier Retry RetryBudget Rule Scope Stable State
    StoreUnavailable Swept TimeWindow Tool ToolPaused TurnBudget Verdict advise breaker
    classify content_key current_effect retry transient
""".split()
GUARD = """
    allowances approvals areconcile aundo call close confirm counts dead_letters find health
    in_doubt observe pause_tool paused_tools reconcile reconciler refute report resume_tool
    retry search sequence step sweep sweeper tool turn undo workflow workflows
""".split()


def test_the_public_names_are_these():
    assert effectonce.__all__ == sorted(NAMES)
    assert all(hasattr(effectonce, name) for name in NAMES)


def test_the_guards_methods_are_these():
    assert [name for name in dir(effectonce.Guard) if not name.startswith("_")] == GUARD


def test_every_public_thing_has_a_docstring():
    for name in NAMES:
        assert inspect.getdoc(getattr(effectonce, name)), name
    for name in GUARD:
        assert inspect.getdoc(getattr(effectonce.Guard, name)), name


def test_every_error_carries_data_and_can_be_shown_to_a_model():
    tree = errors.__doc__
    effect = effectonce.EffectRef("pay", "f" * 40)
    made = {
        "LeaseLost": {"value": 1},
        "PartialSuccess": {"corrective_action": "x"},
        "ReplayedFailure": {"error_type": "E", "error_message": "m"},
        "NotApproved": {"error_type": "E", "error_message": "m"},
    }
    classes = [
        c
        for c in vars(errors).values()
        if inspect.isclass(c) and issubclass(c, errors.EffectOnceError)
    ]
    assert len({c.code for c in classes}) == len(classes)
    for cls in classes:
        assert cls.__name__ in tree
        error = cls("what happened", effect=effect, **made.get(cls.__name__, {}))
        shown = error.as_model_error()
        assert shown["code"] == cls.code
        assert shown["retriable"] is cls.retriable
        assert shown["corrective_action"]
        assert effect.key not in str(shown)


def test_a_policy_takes_what_is_optional_by_keyword_only():
    for function in (
        effectonce.Guard.tool,
        effectonce.Guard.step,
        effectonce.Guard.call,
        effectonce.Guard.confirm,
    ):
        parameters = list(inspect.signature(function).parameters.values())[1:]
        assert sum(p.kind is not inspect.Parameter.KEYWORD_ONLY for p in parameters) <= 2
