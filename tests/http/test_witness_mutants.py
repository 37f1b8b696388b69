"""A witness that is broken on purpose is caught: the ledger of a real server then has a
duplicate, or says that a report was false.

Each mutant takes away one part of what is seen. Each scene is the smallest one where that part
matters: a tool acts in its first run and fails, and pays in its next one. The ledger is read
after each call, and judges what the call said.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import itertools
import multiprocessing
import os
import socket
import subprocess
import sys
import threading

import httpx
import pytest

from effectonce import ContractViolation, EffectOnceError, Guard, Retry, current_effect
from effectonce import effect as effect_module
from effectonce._core import observed_sends
from effectonce._core.classification.verdicts import Bucket, Certainty, Verdict
from effectonce._runtime import nested_tools, unprotected_sends
from effectonce._tools import check_declaration as check_use
from effectonce.effect import Effect
from effectonce.errors import InDoubt, NotSent, ReplayedFailure, ResultUnavailable
from effectonce.http.client import attempts, protect
from tests.http.server import Shop

# the process has threads, and its child does nothing with them
pytestmark = pytest.mark.filterwarnings("ignore:.*fork")
ONCE = Retry(attempts=1, base_s=0.001, cap_s=0.002)
CALLS = 2


class Ledger(Shop):
    """A shop that counts payments apart from everything else that is asked of it."""

    def forget(self):
        super().forget()
        self.paid = 0

    def act(self, method, path, key):
        self.paid += (method, path) == ("POST", "/pay")
        return super().act(method, path, key)

    @property
    def port(self):
        return self.server.server_address[1]


def said_by(error):
    match error:
        case ResultUnavailable():
            return "happened"
        case InDoubt():
            return "unknown"
        case ReplayedFailure():
            return "failed"
        case EffectOnceError():
            return "later"
        case _:  # the tool's own error, whose failure is definite
            return "failed"


def judged(reports):
    """What the ledger says about the reports: pairs of what a call said, and how many payments
    there were then.
    """
    if reports[-1][1] > 1:
        return "duplicate"
    if any(
        (said == "failed" and paid) or (said in ("done", "happened") and not paid)
        for said, paid in reports
    ):
        return "false report"
    return "sound"


class Scene:
    """A tool in its first run and in its next one."""

    def __init__(self, ledger):
        self.ledger, self.guard = ledger, Guard("memory://", cache=0)
        self.url, self.first, self.said = f"{ledger.url}/pay", True, set()
        self.bare, made = httpx.Client(), httpx.Client()
        self.client, self._open = protect(made, retry=ONCE), (self.bare, made)

    def close(self):
        for client in self._open:
            client.close()

    def calls(self, act, **contract):
        """Two calls of a tool that does this, fails, and pays the next time."""
        declared = {"kind": "write", "through": "protected", "retry": ONCE} | contract

        @self.guard.tool(**declared)
        def work(order: int) -> str:
            if self.is_first():
                act()
                raise ValueError("my own bug")
            return self.client.post(self.url).text

        reports = [self.report(work) for _ in range(CALLS)]
        self.said = {said for said, _ in reports}
        return judged(reports)

    def is_first(self):
        first, self.first = self.first, False
        return first

    def report(self, work):
        try:
            with self.guard.step("chat", "work"):
                work(1)
            said = "done"
        except Exception as error:  # whatever comes out is looked at
            said = said_by(error)
        return said, self.ledger.paid


@pytest.fixture
def prepared():
    with Ledger() as ledger, contextlib.closing(Scene(ledger)) as scene:
        yield scene


# ---------------------------------------------------------------- scenes


def a_lost_answer(scene):
    scene.ledger.faults = ["lose"]
    return scene.calls(lambda: scene.client.post(scene.url))


def a_bug_after_the_answer(scene):
    return scene.calls(lambda: scene.client.post(scene.url))


def a_bug_after_a_refusal(scene):
    scene.ledger.faults = [(422, {})]
    return scene.calls(lambda: scene.client.post(scene.url))


def a_redirect_to_a_log_in(scene):
    scene.ledger.faults = [(303, {"location": "/login"})]
    return scene.calls(lambda: scene.client.post(scene.url))


def a_refusal_and_then_a_payment(scene):
    scene.ledger.faults = [(422, {})]

    def act():
        scene.client.post(f"{scene.ledger.url}/token")
        scene.client.post(scene.url)

    return scene.calls(act)


def a_token_and_then_nobody_to_pay(scene):
    def act():
        scene.client.post(f"{scene.ledger.url}/token")
        scene.client.post("http://127.0.0.1:1/pay")

    return scene.calls(act)


def a_bare_client(scene):
    return scene.calls(lambda: httpx.post(scene.url))


def a_bare_client_and_no_declaration(scene):
    return scene.calls(lambda: httpx.post(scene.url), through=())


def a_look_up_and_then_a_bare_client(scene):
    def act():
        scene.client.get(scene.url)
        httpx.post(scene.url)

    return scene.calls(act)


def a_bare_client_named_as_protected(scene):
    """Its connection is open already, so no socket is seen."""
    scene.bare.get(scene.url)
    try:
        return scene.calls(lambda: scene.bare.post(scene.url), through=[scene.bare])
    except ContractViolation:
        return "sound"  # it is refused before anything runs


def a_thread(scene):
    def act():
        thread = threading.Thread(target=httpx.post, args=(scene.url,))
        thread.start()
        thread.join()

    return scene.calls(act)


PAYS = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], b'')"


def a_thread_of_a_warm_pool(scene):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        return scene.calls(lambda: pool.submit(scene.client.post, scene.url).result())


def a_thread_of_a_warm_pool_in_an_earlier_context(scene):
    """As with work of a request that came before."""
    earlier = contextvars.copy_context()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        return scene.calls(lambda: pool.submit(earlier.run, scene.client.post, scene.url).result())


def a_process_of_a_warm_pool(scene):
    spawned = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, spawned) as pool:
        pool.submit(int).result()
        return scene.calls(lambda: pool.submit(httpx.post, scene.url).result().status_code)


def a_datagram(scene, how="sendto"):
    """A bank that is paid by datagrams: what arrived is counted after each call."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bank,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made,
    ):
        bank.bind(("127.0.0.1", 0))
        bank.settimeout(30)
        there = bank.getsockname()
        ways = {
            "sendto": lambda: made.sendto(b"pay", there),
            "sendmsg": lambda: made.sendmsg([b"pay"], [], 0, there),
        }

        def act():
            ways[how]()
            scene.ledger.paid += bank.recv(9) == b"pay"

        return scene.calls(act)


def a_datagram_in_parts(scene):
    return a_datagram(scene, "sendmsg")


def a_process(scene):
    return scene.calls(
        lambda: subprocess.run([sys.executable, "-I", "-S", "-c", PAYS, scene.url], check=True)
    )


def a_fork(scene):
    def act():
        child = os.fork()
        if child == 0:
            try:
                with socket.create_connection(("127.0.0.1", scene.ledger.port)) as made:
                    made.sendall(
                        b"POST /pay HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\nconnection:"
                        b" close\r\n\r\n"
                    )
                    made.recv(1)
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    return scene.calls(act)


def a_tool_inside_it(scene):
    """Run again, the outer tool asks the inner one for something else."""
    amounts = itertools.count(1)

    @scene.guard.tool(kind="write", through=scene.client, retry=ONCE)
    def charge(amount: int) -> str:
        return scene.client.post(scene.url).text

    return scene.calls(lambda: charge(next(amounts)))


def a_thread_of_a_pool_that_goes_on(scene):
    """It was there before the tool, runs in the tool's context, and pays when the tool has
    failed. A record of its own would refuse that, too.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        failed, left = threading.Event(), []

        def later():
            failed.wait(30)
            scene.client.post(scene.url)

        @scene.guard.tool(kind="write", through=scene.client, separate_dispatch=False, retry=ONCE)
        def work(order: int) -> str:
            if scene.is_first():
                left.append(pool.submit(contextvars.copy_context().run, later))
                raise ValueError("too slow")
            return scene.client.post(scene.url).text

        scene.report(work)
        failed.set()
        concurrent.futures.wait(left, 30)
        return judged([scene.report(work)])


def a_task_that_goes_on(scene):
    """Its connection is open already, so no socket is seen."""

    async def main():
        async with httpx.AsyncClient() as bare:
            await bare.get(scene.url)
            tasks = []

            @scene.guard.tool(kind="write", through="protected", retry=ONCE)
            async def work(order: int) -> str:
                if scene.is_first():
                    tasks.append(asyncio.create_task(bare.post(scene.url)))
                    raise ValueError("too slow")
                return (await bare.post(scene.url)).text

            for _ in range(CALLS):
                with scene.guard.step("chat", "work"), contextlib.suppress(Exception):
                    await work(1)
                await asyncio.gather(*tasks)
        return judged([("", scene.ledger.paid)])

    return asyncio.run(main())


def a_task_that_goes_on_when_its_tool_says_not_sent(scene):
    """A record of its own would refuse it, too."""

    async def main():
        async with httpx.AsyncClient() as made:
            client, tasks, again = protect(made, retry=ONCE), [], asyncio.Event()

            async def later():
                await again.wait()
                await client.post(scene.url)

            declared = {"kind": "write", "through": client, "separate_dispatch": False}

            @scene.guard.tool(**declared, retry=ONCE)
            async def work(order: int) -> str:
                if scene.is_first():
                    tasks.append(asyncio.create_task(later()))
                    raise NotSent("the address service says no")
                return (await client.post(scene.url)).text

            for _ in range(CALLS):
                with scene.guard.step("chat", "work"), contextlib.suppress(Exception):
                    await work(1)
                again.set()
                await asyncio.gather(*tasks, return_exceptions=True)
        return judged([("", scene.ledger.paid)])

    return asyncio.run(main())


def an_announced_send(scene):
    @scene.guard.tool(kind="write", retry=ONCE)
    def work(order: int) -> str:
        with current_effect().sending():
            httpx.post(scene.url)
            if scene.is_first():
                raise ValueError("my own bug")
        return "paid"

    return judged([scene.report(work) for _ in range(CALLS)])


# ---------------------------------------------------------------- the sabotage


def nothing_is_announced(monkeypatch):
    monkeypatch.setattr(Effect, "announce", lambda self, sighting: None)


def only_the_first_is_counted(monkeypatch):
    monkeypatch.setattr(
        Effect,
        "announce",
        lambda self, sighting: None if self.requests else self.requests.append(sighting),
    )


def what_left_counts_as_unsent(monkeypatch):
    unsent = Verdict(Bucket.UNREACHABLE, Certainty.NOT_SENT)
    saw = attempts.ClientAttempts._saw
    monkeypatch.setattr(attempts.ClientAttempts, "_saw", lambda self, verdict: saw(self, unsent))


def a_request_belongs_to_no_effect(monkeypatch):
    monkeypatch.setattr(attempts, "effect_here", lambda: None)


def a_success_is_a_refusal(monkeypatch):
    refused, answered_well = (
        Verdict(Bucket.SCHEMA, Certainty.REJECTED),
        attempts.ClientAttempts._answered_well,
    )

    def mistaken(self, answered):
        response = answered_well(self, answered)
        self._sighting.answered, self._sighting.verdict = False, refused
        return response

    monkeypatch.setattr(attempts.ClientAttempts, "_answered_well", mistaken)


def a_refusal_is_a_success(monkeypatch):
    def mistaken(self, verdict):
        self._sighting.answered = True

    monkeypatch.setattr(attempts.ClientAttempts, "_saw", mistaken)


def a_redirect_is_a_success(monkeypatch):
    monkeypatch.setattr(attempts, "DONE", frozenset(range(200, 400)))


def what_could_not_leave_is_forgotten(monkeypatch):
    monkeypatch.setattr(observed_sends, "_moved", lambda sighting: True)


def blind_to(what):
    def sabotage(monkeypatch):
        left = {event: said for event, said in unprotected_sends.NOTICED.items() if said != what}
        monkeypatch.setattr(unprotected_sends, "NOTICED", left)

    sabotage.__name__ = f"blind_to_what_{what.replace(' ', '_')}"
    return sabotage


def every_context_is_the_tools(monkeypatch):
    keeps = unprotected_sends._keeps_its_context

    def mistaken(function):
        return isinstance(getattr(function, "__self__", None), contextvars.Context) or keeps(
            function
        )

    monkeypatch.setattr(unprotected_sends, "_keeps_its_context", mistaken)


def blind_to_tasks(monkeypatch):
    monkeypatch.setattr(check_use, "tasks_of", lambda effect: False)


def blind_to_tools_inside(monkeypatch):
    monkeypatch.setattr(nested_tools, "_noticed_around", lambda outer, effect: None)


def blind_after_a_request(monkeypatch):
    @contextlib.contextmanager
    def past_us():
        effect_module.noted.set(effect_module.running.get())
        yield

    monkeypatch.setattr(attempts, "past_us", past_us)


class Everything:
    def __contains__(self, client):
        return True


def every_client_is_protected(monkeypatch):
    monkeypatch.setattr(unprotected_sends, "_PROTECTED", Everything())


def every_tool_declares_it(monkeypatch):
    summed_up = check_use.seen
    monkeypatch.setattr(
        check_use,
        "seen",
        lambda sightings, *, whole, alone: summed_up(sightings, whole=True, alone=alone),
    )


def the_end_of_an_attempt_stops_nothing(monkeypatch):
    monkeypatch.setattr(Effect, "announce", lambda self, sighting: self.requests.append(sighting))


def its_own_word_stops_nothing(monkeypatch):
    monkeypatch.setattr(
        check_use.DeclarationCheck, "_says_not_sent", lambda self, effect, error: False
    )


def sending_announces_nothing(monkeypatch):
    monkeypatch.setattr(Effect, "sending", lambda self: effect_module.past_us())


MUTANTS = [
    (nothing_is_announced, a_lost_answer, "duplicate"),
    (what_left_counts_as_unsent, a_lost_answer, "duplicate"),
    (a_request_belongs_to_no_effect, a_lost_answer, "duplicate"),
    (only_the_first_is_counted, a_refusal_and_then_a_payment, "false report"),
    (a_success_is_a_refusal, a_bug_after_the_answer, "false report"),
    (a_refusal_is_a_success, a_bug_after_a_refusal, "false report"),
    (a_redirect_is_a_success, a_redirect_to_a_log_in, "false report"),
    (what_could_not_leave_is_forgotten, a_token_and_then_nobody_to_pay, "false report"),
    (blind_to("connected a socket"), a_bare_client, "duplicate"),
    (blind_to("started a thread"), a_thread, "duplicate"),
    (blind_to("gave work to a thread"), a_thread_of_a_warm_pool, "duplicate"),
    (
        every_context_is_the_tools,
        a_thread_of_a_warm_pool_in_an_earlier_context,
        "duplicate",
    ),
    (blind_to("gave work to a process"), a_process_of_a_warm_pool, "duplicate"),
    (blind_to("sent a datagram"), a_datagram, "duplicate"),
    (blind_to("sent a datagram"), a_datagram_in_parts, "duplicate"),
    (blind_to("started a process"), a_process, "duplicate"),
    (blind_to("forked"), a_fork, "duplicate"),
    (blind_to_tasks, a_task_that_goes_on, "duplicate"),
    (blind_to_tools_inside, a_tool_inside_it, "duplicate"),
    (blind_after_a_request, a_look_up_and_then_a_bare_client, "duplicate"),
    (every_client_is_protected, a_bare_client_named_as_protected, "duplicate"),
    (every_tool_declares_it, a_bare_client_and_no_declaration, "duplicate"),
    (the_end_of_an_attempt_stops_nothing, a_thread_of_a_pool_that_goes_on, "duplicate"),
    (its_own_word_stops_nothing, a_task_that_goes_on_when_its_tool_says_not_sent, "duplicate"),
    (sending_announces_nothing, an_announced_send, "duplicate"),
]


# the others end in doubt
CERTAIN = {a_bug_after_the_answer: "happened", a_bug_after_a_refusal: "failed"}


@pytest.mark.long  # the scenes themselves guard the witness: each finds it sound, below
@pytest.mark.parametrize(
    ("sabotage", "scene", "verdict"), MUTANTS, ids=lambda each: getattr(each, "__name__", each)
)
def test_a_broken_witness_is_caught(sabotage, scene, verdict, prepared, monkeypatch):
    sabotage(monkeypatch)

    assert scene(prepared) == verdict


@pytest.mark.parametrize(
    "scene", dict.fromkeys(scene for _, scene, _ in MUTANTS), ids=lambda scene: scene.__name__
)
def test_a_sound_witness_makes_no_duplicate_and_no_false_report(scene, prepared):
    assert scene(prepared) == "sound"
    assert prepared.said <= {CERTAIN.get(scene, "unknown")}


def test_each_kind_of_thing_that_is_noticed_elsewhere_has_a_mutant():
    names = {sabotage.__name__ for sabotage, _, _ in MUTANTS}

    assert {blind_to(what).__name__ for what in unprotected_sends.NOTICED.values()} <= names
