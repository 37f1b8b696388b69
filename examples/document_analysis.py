"""Analyse a document in three steps, and die in the second. Run it again: the first answer is
not paid for twice.

    python examples/document_analysis.py --die
    python examples/document_analysis.py

The model is a stand-in that works without a network. Each answer that it really gave is a line
of model.log.
"""

import os
import signal
import sys
from pathlib import Path

from effectonce import Guard
from effectonce.workflows import Run

guard = Guard("sqlite:///effects.db")
DOCUMENT = (
    "Acme and Globex signed on 1 March in Pune: 400 widgets, to be delivered in May, at 14,000"
    " rupees each. " * 50
)


def model(task: str, prompt: str) -> str:
    """What a real client would do here; its own retries belong switched off
    (effectonce.retries.clients.without_retries).
    """
    if task == "classify" and "--die" in sys.argv:
        print("the model was asked to classify, and now we die", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    with Path("model.log").open("a") as log:
        log.write(f"{task}: {len(prompt)} characters\n")
    answers = {
        "extract": "Acme, Globex, Pune, widgets, May",
        "classify": "contract",
        "report": "A contract between Acme and Globex.",
    }
    return answers[task]


@guard.workflow(identity=["document_id"], lease_s=1)
def analyse(run: Run, document_id: str, text: str) -> dict[str, str]:
    entities = run.ask(
        "extract entities", model, "extract", f"The five main entities of: {text[:1000]}"
    )
    kind = run.ask("classify", model, "classify", f"One word for a document about {entities}")
    report = run.ask("report", model, "report", f"Two paragraphs on a {kind} about {entities}")
    return {"entities": entities, "kind": kind, "report": report}


result = analyse("doc-17", DOCUMENT)
print(f"{result['kind']}: {result['report']}")
for run in guard.workflows.runs("completed", workflow="analyse"):
    summary = guard.workflows.summary(run.request.key)
    print(
        f"{summary.workflow} was begun {summary.runs} times:",
        ", ".join(f"{s.name} {s.state}" for s in summary.steps),
    )
print("answers that were paid for:", len(Path("model.log").read_text().splitlines()))
