"""What happens to a LangGraph agent or graph, and how often its effect lands."""

from contextlib import contextmanager

from tests.integrations.engines.crew import Clerk


@contextmanager
def langgraph(folder, saver, effects):
    """*saver* is where LangGraph keeps its checkpoints, *effects* where we keep ours."""
    with Clerk(folder, "-m", "tests.integrations.engines.langgraph_app") as clerk:
        clerk.environment |= {"SHOP_SAVER": saver, "SHOP_EFFECTS": effects}
        clerk.work()
        yield clerk


def rows(clerk):
    def killed(name, durability, payments, *, graph="agent"):
        wish = (graph, name, payments, len(payments), durability)
        clerk.dies("after the effect", "say", *wish)
        clerk.ask("resume", *wish)

    for durability in ("sync", "async", "exit"):
        killed(f"killed-{durability}", durability, [f"killed-{durability}"])
        yield (
            f'the process is killed after the effect, another resumes; durability="{durability}"',
            clerk.effects(f"killed-{durability}"),
        )

    clerk.dies("after the effect", "say", "agent", "decides-again", ["decides-again"], 1, "sync")
    clerk.ask("say", "agent", "decides-again", ["decides-again"], 1, "sync")
    yield (
        (
            "the process is killed, and the user asks again: the model decides again, with another"
            " call id and other words"
        ),
        clerk.effects("decides-again"),
    )

    batch = [f"batch-{n}" for n in range(3)]
    killed("batch", "sync", batch)
    assert [clerk.effects(name) for name in batch] == [1, 1, 1]
    yield (
        "three calls side by side in one message, and the process is killed during one",
        sum(map(clerk.effects, batch)),
    )

    clerk.ask("say", "agent", "forked", ["forked"], 1, "sync")
    clerk.ask("fork", "agent", "forked", "tools")
    yield (
        "it is run again from all its checkpoints, and after update_state (time travel)",
        clerk.effects("forked"),
    )

    clerk.ask("say", "agent", "wishes", ["wishes"], 2, "sync")
    yield "the model saw the result, and calls again on purpose", clerk.effects("wishes")

    assert clerk.ask("say", "approved", "approved", ["approved"], 1, "sync") == ["tools"]
    assert clerk.effects("approved") == 0
    clerk.dies("after the effect", "resume", "approved", "approved", ["approved"], 1, "sync")
    clerk.ask("resume", "approved", "approved", ["approved"], 1, "sync")
    yield (
        "a person approves before the tool (interrupt), and the process is killed after the effect",
        clerk.effects("approved"),
    )

    clerk.plan("after the tool", "raised")
    clerk.ask("give", "node", "node-retry", ["node-retry"])
    yield "a node fails after the tool, and is retried by its policy", clerk.effects("node-retry")

    assert clerk.ask("give", "asks after", "asked-after", ["asked-after"]) == ["pays"]
    clerk.ask("resume", "asks after", "asked-after", [], 0, "sync")
    yield (
        "a person is asked after the tool (interrupt), and the node runs again with the answer",
        clerk.effects("asked-after"),
    )

    sent = [f"sent-{n % 2}" for n in range(3)]
    clerk.plan("after the tool", "raised")
    clerk.ask("give", "side by side", "sent", sent)
    yield (
        "a node is sent three times side by side, two of them equal, and one is retried",
        sum(map(clerk.effects, set(sent))),
    )

    clerk.ask("give", "by payment", "node-forked", ["node-forked"])
    clerk.ask("fork", "by payment", "node-forked", "pays")
    yield (
        "a node whose step has a name is run again from an older checkpoint (time travel)",
        clerk.effects("node-forked"),
    )

    for _ in range(2):
        clerk.ask("give", "node", "node-wishes", ["node-wishes"])
    yield "a node is visited twice on purpose", clerk.effects("node-wishes")
