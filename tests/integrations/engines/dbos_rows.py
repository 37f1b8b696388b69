"""What happens to a DBOS workflow, and how often its effect lands."""

from contextlib import contextmanager

from tests.integrations.engines.crew import Clerk


@contextmanager
def dbos(folder):
    with Clerk(folder, "-m", "tests.integrations.engines.dbos_app") as clerk:
        clerk.work()
        yield clerk


def rows(clerk):
    def ran(name, workflow):
        clerk.ask("run", name, workflow)
        return clerk.effects(name)

    def killed(name, point):
        clerk.dies(point, "run", name, "pays")
        clerk.ask("result", name)  # recovered by DBOS itself
        return clerk.effects(name)

    clerk.plan("after the tool", "raised")
    yield "the step fails after the tool, and is retried", ran("step-retry", "pays")

    yield (
        "the process is killed after the effect, another recovers",
        killed("killed", "after the effect"),
    )

    yield "the process is killed between two steps", killed("killed-between", "after the step")

    clerk.plan("after the tool", "raised")
    yield (
        "the workflow's code catches the failure, and calls again",
        ran("calls-again", "calls_again"),
    )

    ran("forked", "pays")
    clerk.ask("fork", "forked", 1)
    clerk.plan("changed", "the code")
    clerk.ask("fork", "forked", 1)
    (clerk.folder / "changed").unlink()
    yield (
        "it is forked (redrive), also after the code before the step has changed",
        clerk.effects("forked"),
    )

    ran("child", "parent")
    clerk.ask("fork", "child", 1)
    yield "a child workflow, in a parent that is forked", clerk.effects("child")

    yield "called twice on purpose", ran("wishes", "wishes")
    yield "called twice on purpose, side by side", ran("side-by-side", "side_by_side")
