"""What happens to a DBOS workflow, and how often its effect lands."""

import json
from contextlib import contextmanager

from tests.integrations.engines.crew import Crew
from tests.servers._process import until


class Clerk(Crew):
    """A crew whose worker is asked by files."""

    asked = 0

    def send(self, *command):
        self.asked += 1
        part = self.folder / f"part-{self.asked:03}"
        part.write_text(json.dumps(command))
        part.rename(self.folder / f"ask-{self.asked:03}")
        return self.folder / f"answer-{self.asked:03}"

    def ask(self, *command):
        said = self._answer(command)
        assert "error" not in said, said
        return said["value"]

    def fails(self, *command):
        return self._answer(command)["error"]

    def _answer(self, command):
        answer = self.send(*command)
        until(answer.exists, f"an answer to {command}")
        return json.loads(answer.read_text())

    def kill(self, name, workflow, point):
        """Run a workflow that dies there. It is not asked for again: the engine recovers it in the next worker."""
        self.plan(point, "kill")
        self.send("run", name, workflow)
        self.killed()
        (self.folder / f"ask-{self.asked:03}").unlink()
        self.work()
        self.ask("result", name)
        return self.effects(name)


@contextmanager
def dbos(folder):
    with Clerk(folder, "-m", "tests.integrations.engines.dbos_app") as clerk:
        clerk.work()
        yield clerk


def rows(clerk):
    def ran(name, workflow):
        clerk.ask("run", name, workflow)
        return clerk.effects(name)

    clerk.plan("after the tool", "raised")
    yield "the step fails after the tool, and is retried", ran("step-retry", "pays")

    yield "the process is killed after the effect, another recovers", clerk.kill("killed", "pays", "after the effect")

    yield "the process is killed between two steps", clerk.kill("killed-between", "pays", "after the step")

    clerk.plan("after the tool", "raised")
    yield "the workflow's code catches the failure, and calls again", ran("calls-again", "calls_again")

    ran("forked", "pays")
    clerk.ask("fork", "forked", 1)
    clerk.plan("changed", "the code")
    clerk.ask("fork", "forked", 1)
    (clerk.folder / "changed").unlink()
    yield "it is forked (redrive), also after the code before the step has changed", clerk.effects("forked")

    ran("child", "parent")
    clerk.ask("fork", "child", 1)
    yield "a child workflow, in a parent that is forked", clerk.effects("child")

    yield "called twice on purpose", ran("wishes", "wishes")
    yield "called twice on purpose, side by side", ran("side-by-side", "side_by_side")
