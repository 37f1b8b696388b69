"""A Celery app: celery -A tests.integrations.engines.celery_app worker"""

import os

from celery import Celery

from effectonce.integrations.celery import EffectOnce
from tests.integrations.engines import shop

VISIBLE_AFTER_S = 1
BROKER = os.environ.get("SHOP_BROKER", "memory://")
app = Celery(
    "shop",
    broker=BROKER,
    backend=BROKER if BROKER.startswith("redis") else None,
    task_cls=EffectOnce(shop.guard),
)
app.conf.broker_transport_options = {"visibility_timeout": VISIBLE_AFTER_S}
app.conf.worker_prefetch_multiplier = 1
app.conf.broker_connection_retry_on_startup = True


@app.task(bind=True, default_retry_delay=0.01)
def refund(self, payment_id, reason):
    try:
        return shop.refunded(payment_id, reason)
    except RuntimeError as error:
        raise self.retry(exc=error) from error


@app.task
def closed(payment_id):
    return shop.closed(payment_id)


@app.task
def wire(payment_id):
    return shop.wire(payment_id)


@app.task(bind=True, default_retry_delay=0.01)
def parent(self, payment_id):
    """It sends another task, which may be run before it is sent again."""
    refund.delay(payment_id, "late" if self.request.retries == 0 else "the parcel was late")
    try:
        shop.accident("after the task was sent")
    except RuntimeError as error:
        raise self.retry(exc=error) from error


@app.task
def wishes(payment_id):
    """On purpose."""
    refund.delay(payment_id, "late")
    refund.delay(payment_id, "late")
