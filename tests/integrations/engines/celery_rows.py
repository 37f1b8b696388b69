"""What happens to a Celery task on Redis, and how often its effect lands."""

import time
from contextlib import contextmanager

from celery import Celery

from tests.integrations.engines.celery_app import VISIBLE_AFTER_S
from tests.integrations.engines.crew import Crew
from tests.servers._process import free_port, until
from tests.servers.redis import Server

WORKER = [
    "-m",
    "celery",
    "-A",
    "tests.integrations.engines.celery_app",
    "worker",
    "-c",
    "1",
    "--loglevel",
    "INFO",
]


class Post(Crew):
    """A crew that is sent messages."""

    def __init__(self, folder, broker):
        super().__init__(
            folder, *WORKER, "--without-gossip", "--without-mingle", "--without-heartbeat"
        )
        self.app, self.broker = Celery("sender", broker=broker.url, backend=broker.url), broker

    def __enter__(self):
        super().__enter__()
        self.environment["SHOP_BROKER"] = self.broker.url
        return self

    def __exit__(self, *_):
        super().__exit__()
        self.app.close()

    def send(self, task, *args, **options):
        return self.app.send_task(f"tests.integrations.engines.celery_app.{task}", args, **options)

    def ran(self, task, name, *args, **options):
        self.ended(self.send(task, name, *args, **options))
        return self.effects(name)

    def ended(self, sent):
        """Wait for its result, and for the worker's word of it, which comes a moment later:
        `done` counts those.
        """
        sent.get(timeout=30)
        until(lambda: self.said(f"[{sent.id}]", "succeeded"), f"the worker's word of {sent.id}")

    def done(self, task, times):
        """Wait until so many tasks of this kind have succeeded."""
        until(lambda: self.said(f"{task}[", "succeeded") >= times, f"{times} times {task}")

    def given_up(self):
        """Is the message of a killed worker older than the time after which Redis' transport
        restores it?
        """
        ((_, taken_at),) = batched(self.broker.ask("ZRANGE", "unacked_index", 0, -1, "WITHSCORES"))
        return time.time() > float(taken_at) + VISIBLE_AFTER_S

    def said(self, *words):
        lines = [
            line
            for log in self.folder.glob("worker-*.log")
            for line in log.read_text(errors="replace").splitlines()
        ]
        return sum(all(word in line for word in words) for line in lines)


def batched(flat):
    return zip(flat[::2], flat[1::2], strict=True)


@contextmanager
def celery(folder):
    broker = Server(folder / "broker", port=free_port())
    try:
        with Post(folder, broker) as post:
            post.work(ready="ready.")
            yield post
    finally:
        broker.stop()


def rows(post):
    post.plan("after the tool", "raised")
    yield (
        "the task fails after the tool, and retries itself",
        post.ran("refund", "task-retry", "late"),
    )

    post.plan("after the effect", "kill")
    yield (
        "its process is killed after the effect, and it is delivered again",
        post.ran("refund", "killed", "late"),
    )

    post.plan("after the effect", "kill the worker")
    sent = post.send("refund", "worker-killed", "late")
    post.killed()
    until(post.given_up, "the end of the visibility time-out")
    post.work(ready="ready.")
    post.ended(sent)
    yield (
        "the whole worker is killed after the effect; the message is restored",
        post.effects("worker-killed"),
    )

    first = post.send("refund", "redrive", "late")
    post.ended(first)
    before = post.said("refund[", "succeeded")
    post.send("refund", "redrive", "the parcel was late", task_id=first.id)
    post.done("refund", before + 1)
    header = {"effectonce": {"scope": first.id}}
    yield (
        "it is sent again by hand, under its id or with its header (redrive)",
        post.ran("refund", "redrive", "late", headers=header),
    )

    before = post.said("refund[", "succeeded")
    post.plan("after the task was sent", "raised")
    post.ran("parent", "child")
    post.done("refund", before + 2)
    yield "a task that is sent by a task, which is retried", post.effects("child")

    before = post.said("refund[", "succeeded")
    post.ran("wishes", "wishes")
    post.done("refund", before + 2)
    yield "sent twice on purpose", post.effects("wishes")
