"""What Celery makes of our errors, and what a message carries."""

import pytest
from celery import Celery, Task
from celery.signals import before_task_publish

from effectonce import Guard, InDoubt
from effectonce._core.ops import Search
from effectonce.integrations import celery as ours
from effectonce.integrations.celery import once
from tests.integrations.engines.celery_rows import celery

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs


@pytest.fixture
def guard():
    return Guard("memory://")


@pytest.fixture
def app(guard):
    made = Celery("shop", broker="memory://", backend="cache+memory://", task_cls=once(guard), set_as_current=False)
    yield made
    made.close()


@pytest.fixture
def published():
    """The header of ours in each message that leaves."""
    sent = []

    def keep(headers=None, **_):
        sent.append(headers.get("effectonce"))

    before_task_publish.connect(keep)
    yield sent
    before_task_publish.disconnect(keep)


@pytest.fixture
def pay(app, guard):
    @guard.tool(kind="write")
    def charge(payment_id: str) -> str:
        return f"paid {payment_id}"

    @app.task(name="pay")
    def pay(payment_id):
        return charge(payment_id)

    return pay


def test_what_may_go_better_is_retried_and_a_doubt_is_not(tmp_path):
    with celery(tmp_path) as post:
        post.plan("before the effect", "raised")
        post.ran("closed", "closed")
        with pytest.raises(InDoubt) as doubt:
            post.send("wire", "doubt").get(timeout=30)

        assert (post.effects("closed"), post.effects("doubt")) == (1, 1)
        assert post.said("closed[", "retry: Retry in") == 1
        assert post.said("wire[", "retry: Retry in") == 0
        assert "eff_" in str(doubt.value)


def test_a_task_is_a_step_of_its_message(guard, pay):
    for _ in range(2):
        assert pay.apply(args=["p"], task_id="message-1").get() == "paid p"

    (record,) = guard.store.apply(Search(limit=10))
    assert (record.request.scope, record.request.step) == ("message-1", "pay")


def test_called_directly_a_task_is_a_function(guard, pay):
    with guard.step("chat-42", "pay"):
        assert pay("p") == "paid p"

    (record,) = guard.store.apply(Search(limit=10))
    assert record.request.scope == "chat-42"


def test_a_message_carries_the_tenant_of_whoever_sends_it(guard, pay, published):
    with guard.step("chat-42", "pay", tenant="acme"):
        pay.delay("p")
        pay.apply_async(["p"], headers={"effectonce": {"scope": "by hand"}, "other": 1})
    pay.delay("p")

    assert published == [{"tenant": "acme"}, {"scope": "by hand"}, None]


def test_a_header_says_who_it_is(guard, pay):
    header = {"effectonce": {"scope": "order-7", "tenant": "acme"}}
    for _ in range(2):
        pay.apply(args=["p"], headers=header)

    (record,) = guard.store.apply(Search(limit=10))
    assert (record.request.tenant, record.request.scope) == ("acme", "order-7")


def test_a_task_that_is_sent_by_a_task_is_known_by_its_place(app, pay, published):
    @app.task(name="parent")
    def parent():
        pay.delay("p")
        pay.delay("p")
        pay.delay("q")
        pay.apply_async(["p"], task_id="named")

    for _ in range(2):
        parent.apply(task_id="message-1")

    scopes = [header.get("scope") for header in published]
    assert scopes == ["message-1/pay#0", "message-1/pay#1", "message-1/pay#0", None] * 2


def test_a_task_that_calls_itself_as_a_function_stays_in_its_step(app, pay, published):
    @app.task(name="deep")
    def deep(left):
        pay.delay("p")
        if left:
            deep(left - 1)

    deep.apply(args=[1], task_id="message-1")

    assert [header["scope"] for header in published] == ["message-1/pay#0", "message-1/pay#1"]


def test_without_a_word_from_downstream_it_waits_longer_each_time(monkeypatch):
    monkeypatch.setattr(ours.random, "random", lambda: 1.0)

    assert [ours._delay_s(InDoubt("x"), retries) for retries in (0, 1, 2, 20)] == [1.0, 2.0, 4.0, 300.0]
    assert ours._delay_s(InDoubt("x", retry_after_s=7.0), 3) == 7.0


def test_a_class_of_ones_own_is_kept(guard):
    class Mine(Task):
        abstract = True
        queue = "mine"

    made = once(guard, base=Mine)

    assert issubclass(made, Mine)
    assert (made.acks_late, made.reject_on_worker_lost, made.queue) == (True, True, "mine")
