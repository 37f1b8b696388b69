"""drf-idempotency: a Django project with one view, in this process, on SQLite. The exception of a
view is a 500, which is not kept. Best configured: the view answers 400 where the service refused,
and 424 where it may have happened and no key makes a second request safe; both are kept.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from oncebench.adapters._retries import nothing_happened, refused
from oncebench.kit import Says, Setup, Told

NAME = "drf-idempotency"
KIND = "library"
REQUIRES = ("drf-idempotency==1.0.0",)
README = "README, Quick Start; docs, Settings, CACHE_CLIENT_ERROR_RESPONSES, for the best"
LACKS = {"asks": "it has no way to ask a service (drf_idempotency.settings)"}


class Answered(Exception):
    """The answer is neither a result nor a word of the middleware."""


def open(setup: Setup) -> Callable[..., Any]:
    import django
    from django.conf import settings

    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": setup.folder / "db.sqlite3"}
    settings.configure(
        SECRET_KEY="secret",  # noqa: S106
        ALLOWED_HOSTS=["*"],
        DATABASES={"default": database},
        INSTALLED_APPS=["rest_framework", "drf_idempotency"],
        MIDDLEWARE=["drf_idempotency.middleware.IdempotencyMiddleware"],
        ROOT_URLCONF=type("urls", (), {"urlpatterns": (patterns := [])}),
        REST_FRAMEWORK={"UNAUTHENTICATED_USER": None, "DEFAULT_AUTHENTICATION_CLASSES": []},
        IDEMPOTENCY={
            "BACKEND": "drf_idempotency.backends.database.DatabaseBackend",
            "LOCK_TTL_SECONDS": max(1, int(setup.lease_s)),
        },
    )
    django.setup()
    _migrate(setup)
    from django.test import Client

    client = Client(raise_request_exception=False)
    key: list[str | None] = [None]
    setup.key = lambda: key[0]

    def protect(tool: Callable[..., Any]) -> Callable[..., Any]:
        name = tool.__module__.rpartition(".")[2]
        patterns.append(_path(setup, name, tool))

        def call(order: str, amount: int, note: str = "") -> Any:
            key[0] = f"{name}:{sha256(order.encode()).hexdigest()}"  # keys have few characters
            body = {"order": order, "amount": amount, "note": note}
            response = client.post(
                f"/{name}",
                json.dumps(body),
                content_type="application/json",
                headers={"Idempotency-Key": key[0]},
            )
            match response.status_code:
                case 200:
                    return json.loads(response.content or "null")
                case 409:
                    return Told("busy")
                case 422:
                    return Told("conflict")
                case 424:
                    return Told("unknown")
            raise Answered(f"{response.status_code}: {response.content!r}")

        return call

    return protect


def _migrate(setup: Setup) -> None:
    from django.core.management import call_command

    with (setup.folder / "migrating").open("w") as lock:  # others begin as well
        fcntl.flock(lock, fcntl.LOCK_EX)
        call_command("migrate", verbosity=0)


def _path(setup: Setup, name: str, tool: Callable[..., Any]) -> Any:
    from django.urls import path
    from rest_framework.decorators import api_view
    from rest_framework.renderers import JSONRenderer
    from rest_framework.response import Response

    def view(request: Any) -> Response:
        try:
            return Response(tool(**request.data))
        except Exception as error:
            if setup.best and refused(error):
                return Response(str(error), 400)
            if not setup.best or setup.temperament == "keys" or nothing_happened(error):
                raise
            return Response(str(error), 424)

    made = api_view(["POST"])(view)
    made.cls.renderer_classes = [JSONRenderer]
    return path(name, made)


def said(error: Exception) -> Says:
    return "raised"
