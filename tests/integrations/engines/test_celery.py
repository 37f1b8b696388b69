"""What Celery makes of our errors, and what a message carries."""

import uuid

import pytest
from celery import Celery, Task, chain, chord, group
from celery.exceptions import Retry
from celery.signals import before_task_publish

from effectonce import ContractViolation, Guard, InDoubt
from effectonce._core.ops import Search
from effectonce.integrations import celery as ours
from effectonce.integrations.celery import EffectOnce

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs


@pytest.fixture
def guard():
    return Guard("memory://")


@pytest.fixture
def app(guard):
    made = Celery(
        "shop",
        broker="memory://",
        backend="cache+memory://",
        task_cls=EffectOnce(guard),
        set_as_current=False,
    )
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


def test_what_may_go_better_is_retried_and_a_doubt_is_not(celery_post):
    post = celery_post
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


@pytest.mark.parametrize("task_id", ["report-2025-03-01T10:00:00", "attempt-2", "ada@example.test"])
def test_a_task_is_taken_whatever_its_id_looks_like(guard, pay, task_id):
    for _ in range(2):
        pay.apply(args=["p"], task_id=task_id, throw=True)
        pay.apply(
            args=["p"],
            headers={"effectonce": {"scope": task_id, "tenant": "ada@example.test"}},
            throw=True,
        )

    assert {record.request.scope for record in guard.store.apply(Search(limit=10))} == {task_id}


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


def test_a_task_that_is_sent_by_its_name_is_known_by_its_place_unless_it_has_an_id(
    app, pay, published
):
    @app.task(name="parent")
    def parent():
        app.send_task("pay", ["p"])
        app.send_task("elsewhere.pay", kwargs={"payment_id": "p"})
        app.signature("elsewhere.pay", kwargs={"payment_id": "p"}).apply_async()
        app.send_task("pay", ["p"], task_id="named")

    for _ in range(2):
        parent.apply(task_id="message-1")
    app.send_task("pay", ["p"])

    scopes = [(header or {}).get("scope") for header in published]
    assert scopes == [
        "message-1/pay#0",
        "message-1/elsewhere.pay#0",
        "message-1/elsewhere.pay#1",
        None,
    ] * 2 + [None]


def test_tasks_that_are_sent_side_by_side_do_not_wait_for_each_others_doubts(app, guard):
    @guard.tool(kind="write")
    def charge(payment_id: str) -> str:
        if payment_id == "p":
            raise ConnectionResetError
        return f"paid {payment_id}"

    app.conf.task_always_eager = True
    sent = []

    @app.task(name="pay")
    def pay(payment_id):
        return charge(payment_id)

    @app.task(name="parent")
    def parent():
        sent.extend(pay.delay(payment_id) for payment_id in "pqr")

    parent.apply(task_id="message-1")

    assert isinstance(sent[0].result, InDoubt)
    assert [each.result for each in sent[1:]] == ["paid q", "paid r"]


@pytest.mark.parametrize("header", ["message-1", ["message-1"]])
def test_a_header_that_says_nothing_is_told_as_that(header, guard, pay):
    result = pay.apply(args=["p"], headers={"effectonce": header}).result

    assert isinstance(result, ContractViolation)
    assert guard.store.apply(Search(limit=10)) == ()


def canvases(pay):
    return {
        "group": group(pay.s("p"), pay.s("p"), pay.s("q")),
        "chain": chain(pay.s("p"), pay.si("q"), group(pay.si("r"), pay.si("s"))),
        "chord": chord([pay.s("p"), pay.s("q")], pay.si("body")),
        "link": group(pay.s("p").set(link=pay.si("q"))),
        "link_error": group(pay.s("p").set(link_error=pay.si("q"))),
        "nested": chain(pay.s("p"), pay.si("q").set(link=pay.si("r"), link_error=pay.si("s"))),
    }


@pytest.mark.parametrize("kind", ["group", "chain", "chord", "link", "link_error", "nested"])
def test_what_a_task_sends_as_one_is_known_by_its_place_although_celery_has_named_it(
    app, pay, kind
):
    @app.task(name="parent")
    def parent():
        canvases(pay)[kind].apply_async()

    sent = [identities(app, lambda: parent.apply(task_id="message-1")) for _ in range(2)]

    assert sent[0] == sent[1]
    assert all(scope.startswith("message-1/pay#") for scope, _ in sent[0])
    assert (
        len(sent[0])
        == {"group": 3, "chain": 4, "chord": 3, "link": 2, "link_error": 2, "nested": 4}[kind]
    )


def test_what_is_named_by_hand_or_sent_from_outside_keeps_its_name(app, pay, published):
    @app.task(name="parent", bind=True)
    def parent(self):
        group(pay.s("p").set(task_id="named")).apply_async()
        raise self.retry(countdown=0)

    parent.apply_async(task_id="message-1")
    group(pay.s("p")).apply_async()
    request = {
        "id": str(uuid.uuid4()),
        "called_directly": False,
        "is_eager": False,
        "retries": 0,
        "delivery_info": {},
    }
    after = pay.si("q").set(task_id=str(uuid.uuid4()))
    parent.push_request(**request, args=[], kwargs={}, headers=None, chain=[after])
    with pytest.raises(Retry):
        parent()

    assert published == [None, None, {"tenant": "main"}, {"tenant": "main"}]
    assert "headers" not in after.options


def identities(app, send):
    """Who is who in all messages that leave, what follows a task included."""
    scopes = []

    def keep(headers=None, body=None, **_):
        args, _, embedded = body
        scopes.append((headers["effectonce"]["scope"], *args))
        scopes.extend(
            following([embedded[part] for part in ("chain", "chord", "callbacks", "errbacks")])
        )

    before_task_publish.connect(keep)
    try:
        send()
    finally:
        before_task_publish.disconnect(keep)
    return sorted(set(scopes))


def following(after):
    if isinstance(after, list | tuple):
        return [scope for each in after for scope in following(each)]
    if after is None:
        return []
    if after["kwargs"].get("tasks"):
        return following(after["kwargs"]["tasks"])
    options = after["options"]
    return [
        (options["headers"]["effectonce"]["scope"], *after["args"]),
        *following([options.get("link"), options.get("link_error")]),
    ]


def test_a_task_that_calls_itself_as_a_function_stays_in_its_step(app, pay, published):
    @app.task(name="deep")
    def deep(left):
        pay.delay("p")
        if left:
            deep(left - 1)

    deep.apply(args=[1], task_id="message-1")

    assert [header["scope"] for header in published] == ["message-1/pay#0", "message-1/pay#1"]


def test_without_a_word_from_downstream_it_waits_longer_each_time(monkeypatch):
    monkeypatch.setattr(ours, "rng", lambda: 1.0)

    assert [ours._delay_s(InDoubt("x"), retries) for retries in (0, 1, 2, 20)] == [
        1.0,
        2.0,
        4.0,
        300.0,
    ]
    assert ours._delay_s(InDoubt("x", retry_after_s=7.0), 3) == 7.0


def test_a_class_of_ones_own_is_kept(guard):
    class Mine(Task):
        abstract = True
        queue = "mine"

    made = EffectOnce(guard, base=Mine)

    assert issubclass(made, Mine)
    assert (made.acks_late, made.reject_on_worker_lost, made.queue) == (True, True, "mine")


def test_what_the_broker_did_not_acknowledge_is_the_same_when_it_is_sent_again(guard, published):
    class Unsure(Task):
        """Its broker takes the first message, and its answer is lost."""

        lost = True

        def apply_async(self, *args, **options):
            super().apply_async(*args, **options)
            if type(self).lost:
                type(self).lost = False
                raise ConnectionError("no answer")

    app = Celery(
        "shop",
        broker="memory://",
        backend="cache+memory://",
        task_cls=EffectOnce(guard, base=Unsure),
        set_as_current=False,
    )

    @app.task(name="pay")
    def pay(payment_id):
        return payment_id

    @app.task(name="order")
    def order():
        with pytest.raises(ConnectionError):
            chain(pay.si("a"), pay.si("b")).apply_async()
        chain(pay.si("a"), pay.si("b")).apply_async()
        pay.delay("a")

    order.apply(task_id="order-1").get()
    app.close()

    assert [named["scope"] for named in published] == [
        "order-1/pay#0",
        "order-1/pay#0",
        "order-1/pay#1",
    ]
