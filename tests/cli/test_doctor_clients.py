"""`effectonce doctor --app` names the clients that tools send through and that are not
protected, and no others.
"""

import json

import pytest
from tests.cli.test_cli import effectonce

APP = """
import smtplib
import httpx, requests, urllib3, openai
import botocore.session
from effectonce import Guard, current_effect
from effectonce.http.client import protect

guard = Guard("sqlite:///{}")
guard.counts()
{}
"""


@pytest.fixture
def found(tmp_path, monkeypatch):
    """What is said about the clients of an app, by its subject."""
    monkeypatch.chdir(tmp_path)

    def examined(code):
        (tmp_path / "shop.py").write_text(APP.format(tmp_path / "effects.db", code))
        said = effectonce("doctor", "--app", "shop:guard", "--json")
        assert said.returncode == 0, said.stderr
        return {
            each["subject"]: each
            for each in json.loads(said.stdout)["findings"]
            if each["subject"].startswith("client")
        }

    return examined


def test_a_client_that_a_tool_sends_through_is_named_with_the_line_that_cures_it(found):
    told = found("""
bank, session, pool = httpx.Client(), requests.Session(), urllib3.PoolManager()
model = openai.OpenAI(api_key="k")
queue = botocore.session.Session().create_client("sqs", region_name="eu-west-1")
from smtplib import SMTP

def post(path):
    return session.post(path)

@guard.tool(kind="write")
def refund(payment: str):
    return bank.post("/refunds")

@guard.tool(kind="irreversible")
def pay(payment: str):
    [each.post("/pay") for each in (bank,)]
    return post("/pay")

@guard.tool(kind="write")
async def ask(question: str):
    pool.request("POST", "/"), model.responses, queue.send_message, SMTP()
""")

    assert set(told) == {
        f"client shop:{name}" for name in ("bank", "session", "pool", "model", "queue", "SMTP")
    }
    assert told["client shop:bank"]["found"].startswith("pay, refund send through it")
    assert told["client shop:session"]["found"].startswith("pay sends through it")
    assert told["client shop:bank"]["advice"].startswith(
        "bank = protect(bank), of effectonce.http.client"
    )
    assert not any(each["bad"] for each in told.values())


def test_what_is_protected_declared_or_not_used_by_a_tool_is_not_named(found):
    assert (
        found("""
bank, unused, elsewhere = protect(httpx.Client()), httpx.Client(), httpx.Client()
reads, keyed, alone, announced = httpx.Client(), httpx.Client(), httpx.Client(), httpx.Client()
model = protect(openai.OpenAI(api_key="k"))
SMTP = protect(smtplib.SMTP)

def not_a_tool():
    return elsewhere.get("/")

@guard.tool(kind="write")
def refund(payment: str):
    return bank.post("/refunds"), model.responses, SMTP()

@guard.tool(kind="read")
def balance(payment: str):
    return reads.get("/balance")

@guard.tool(kind="write", downstream="key")
def pay(payment: str):
    return keyed.post("/pay", headers={"Idempotency-Key": current_effect().downstream_key})

@guard.tool(kind="write", one_request=True)
def ship(payment: str):
    return alone.post("/ship")

@guard.tool(kind="write")
def ship_all(payments: list):
    return [ship(payment) for payment in payments]

@guard.tool(kind="write")
def page(team: str):
    with current_effect().sending():
        return announced.post("/page")
""")
        == {}
    )
