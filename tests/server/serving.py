"""`effectonce serve` as a process of its own, on a store with a doubt and a letter in it."""

import subprocess
import sys
from contextlib import contextmanager

from effectonce import Guard
from tests.cli.desk import Desk, environment
from tests.server.shop import Shop

APP = """
import os
from effectonce import Guard
from effectonce.dashboard import Access
from tests.server.shop import Shop

guard = Guard(os.environ["SERVED"])
shop = Shop(guard)
shop.is_open = True


def access(request):
    return Access("eve") if request.headers.get("x-user") == "eve" else None


def operator(request):
    return Access("eve", acts=True) if request.headers.get("x-user") == "eve" else None
"""


def filled(folder, more=lambda shop: None):
    """A desk at a new store."""

    def fill(shop):
        shop.call("chat", "_refund", payment_id="pay_lost", amount_minor=1)
        shop.call("trip", "_ship", parcel="p1")
        more(shop)

    return at_new_store(folder, fill)


def at_new_store(folder, fill):
    guard = Guard(f"sqlite:///{folder / 'effects.db'}")
    fill(Shop(guard))
    guard.close()
    (folder / "house.py").write_text(APP)
    return Desk(folder, f"sqlite:///{folder / 'effects.db'}")


@contextmanager
def serving(desk, *arguments, first="stdout"):
    """It, and the first line that it prints."""
    command = [
        sys.executable,
        "-m",
        "effectonce.cli",
        "serve",
        "--listen",
        "127.0.0.1:0",
        *arguments,
    ]
    environ = environment(EFFECTONCE_STORE=desk.url, SERVED=desk.url, PYTHONUNBUFFERED="1")
    process = subprocess.Popen(
        command,
        cwd=desk.folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process, getattr(process, first).readline().strip()
    finally:
        process.kill()  # a signal that it handles may come before it can
        process.communicate()
