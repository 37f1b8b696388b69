"""What happens to a Restate invocation, and how often its effect lands."""

from contextlib import contextmanager

from tests.frameworks.restate.server import Server
from tests.integrations.engines.crew import Crew
from tests.servers._process import free_port


class Shop(Crew):
    """A crew whose worker serves handlers, and the Restate that calls them."""

    def __init__(self, folder):
        self.port = free_port()
        super().__init__(folder, "-m", "tests.frameworks.restate.app", str(self.port))
        self.restate = Server(folder)

    def __enter__(self):
        super().__enter__()
        self.restate.start()
        self.work()
        self.restate.register(self.port)
        return self

    def __exit__(self, *_):
        self.restate.end()
        super().__exit__()

    def work(self, ready="Running on"):
        super().work(ready)


@contextmanager
def restate(folder):
    with Shop(folder) as shop:
        yield shop


def rows(shop):
    server = shop.restate

    def ran(name, handler="pays"):
        server.call(f"refunds/{handler}", name)
        return shop.effects(name)

    def killed(name, point, handler="pays", then=shop.work):
        """It dies there. It is not sent again: Restate resumes it in the next process."""
        shop.plan(point, "kill")
        invocation = server.send(f"refunds/{handler}", name)
        shop.killed()
        then()
        server.result(invocation)
        return shop.effects(name)

    def with_a_new_server():
        server.end()
        server.start()
        shop.work()

    shop.plan("after the tool", "raised")
    yield "the run fails after the tool, and is retried", ran("run-retry")

    shop.plan("after the step", "raised")
    yield "the handler fails after the run, and is retried", ran("handler-retry", "apays")

    shop.plan("after the tool", "raised")
    yield (
        "a tool that is called without a run, in a handler that is retried",
        ran("no-run", "pays_without_a_run"),
    )

    yield (
        "the process is killed after the effect, another resumes",
        killed("killed", "after the effect"),
    )
    yield "the process is killed between two steps", killed("killed-between", "after the step")
    yield (
        "process and server are killed after the effect",
        killed("all-killed", "after the effect", then=with_a_new_server),
    )

    shop.plan("after the tool", "raised")
    yield "the handler catches the failure, and calls again", ran("calls-again", "calls_again")

    for _ in range(2):
        server.call("refunds/pays", "idempotent", idempotency_key="k-1")
    server.control(server.send("refunds/pays", "idempotent", idempotency_key="k-1"), "purge")
    server.call("refunds/pays", "idempotent", idempotency_key="k-1")
    yield (
        "the same idempotency key is sent again, also after Restate has forgotten it (redrive)",
        shop.effects("idempotent"),
    )

    invocation = server.send("orders/pay_7/run", "workflow")
    server.result(invocation)
    server.control(invocation, "purge")
    server.call("orders/pay_7/run", "workflow")
    yield (
        "the same workflow key is sent again after Restate has forgotten it (redrive)",
        shop.effects("workflow"),
    )

    invocation = server.send("refunds/pays", "restarted", effectonce_scope="ticket-17")
    server.result(invocation)
    server.result(server.control(invocation, "restart-as-new")["new_invocation_id"])
    yield "it has the header, and is restarted as new (redrive)", shop.effects("restarted")

    shop.plan("after the step", "raised")
    yield (
        "called twice on purpose, in a handler that is retried in between",
        ran("wishes", "wishes"),
    )
    yield "called twice on purpose, side by side", ran("side-by-side", "side_by_side")
