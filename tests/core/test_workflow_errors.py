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


WATCHED = {"through": "protected"}


@pytest.mark.parametrize(
    ("requests", "options", "said"),
    [
        ([], {}, ["InDoubt", "InDoubt"]),
        ([], {"not_sent": [ValueError]}, ["ValueError", "contract"]),
        ([], WATCHED, ["ValueError", "contract"]),
        ([refused()], WATCHED, ["StepFailed", "ReplayedFailure"]),
        ([Sighting("POST model")], WATCHED, ["InDoubt", "InDoubt"]),
    ],
    ids=["nothing is known", "declared as not sent", "nothing sent", "refused", "no answer"],
)
def test_what_comes_of_an_error_in_a_step(requests, options, said):
    assert analysed(failing_once(*requests), **options) == said


def test_a_misspelt_declaration_is_refused():
    with pytest.raises(ContractViolation, match="through='everything'"):
        analysed(failing_once(), through="everything")
