"""A Django project in one file, safe to retry: its ASGI application behind the middleware.

    pip install effectonce django uvicorn
    python -m uvicorn --app-dir examples django_app:app

Every payment that is really made is a line in payments.log.
"""

import json
from pathlib import Path

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from effectonce import Guard, current_effect
from effectonce.http.server import IdempotencyMiddleware

CUSTOMERS = {b"Bearer alice-secret": "alice", b"Bearer bob-secret": "bob"}

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1", "shop"])


def customer(scope: dict) -> str | None:
    """Whose request is it? None is answered with 401."""
    return CUSTOMERS.get(dict(scope["headers"]).get(b"authorization"))


@csrf_exempt
def pay(request: HttpRequest) -> JsonResponse:
    """An ordinary view. The bank gets the key: a retry, wherever it comes from, pays once."""
    payment = json.loads(request.body)
    with Path("payments.log").open("a") as log:
        log.write(
            f"{payment['order']} {payment['amount_minor']} {current_effect().downstream_key}\n"
        )
    return JsonResponse(
        {"order": payment["order"], "paid_minor": payment["amount_minor"]}, status=201
    )


urlpatterns = [path("payments", pay)]
app = IdempotencyMiddleware(get_asgi_application(), Guard("sqlite:///effects.db"), tenant=customer)
