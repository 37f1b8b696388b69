"""What an error of a plain function in a run means: its workflow says it, or a protected client
saw what left.
"""

import pytest

from effectonce import ContractViolation, Guard
from effectonce._core.classification.verdicts import Bucket, Certainty, Verdict
from effectonce._core.observed_sends import Sighting
from effectonce.effect import current_effect
from effectonce.workflows import Run


def analysed(function, **options):
    """How two calls of a workflow of one plain step end."""
    guard, said = Guard("memory://"), []

    @guard.workflow(**options)
    def analyse(run: Run, document: str) -> str:
        return run.step("classify", function, document)

    for _ in range(2):
        try:
            said.append(analyse("doc-1"))
        except Exception as error:  # whatever comes out is looked at
            said.append(type(error).__name__)
    return said


def failing_once(*requests):
    left = [True]

    def classify(document: str) -> str:
        if left.pop() if left else False:
            current_effect().requests.extend(requests)
            raise ValueError("bad answer")
        return "contract"

    return classify


def refused():
    sighting = Sighting("POST model")
    sighting.verdict = Verdict(Bucket.SCHEMA, Certainty.REJECTED)
    return sighting


def test_a_step_that_says_nothing_is_in_doubt():
    assert analysed(failing_once()) == ["InDoubt", "InDoubt"]


@pytest.mark.parametrize("options", [{"not_sent": [ValueError]}, {"through": "protected"}])
def test_a_step_that_had_sent_nothing_runs_again(options):
    assert analysed(failing_once(), **options) == ["ValueError", "contract"]


def test_a_step_whose_request_was_refused_has_failed():
    assert analysed(failing_once(refused()), through="protected") == [
        "StepFailed",
        "ReplayedFailure",
    ]


def test_a_step_whose_request_has_no_answer_is_in_doubt():
    assert analysed(failing_once(Sighting("POST model")), through="protected") == [
        "InDoubt",
        "InDoubt",
    ]


def test_a_misspelt_declaration_is_refused():
    with pytest.raises(ContractViolation, match="through='everything'"):
        analysed(failing_once(), through="everything")
