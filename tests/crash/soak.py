"""Kill and stop real processes at every named point, thousands of times, and count what happened
downstream.

    python -m tests.crash.soak --kills 2000 --stops 200 [--store postgres|redis] [--store-kills 50]

Each round is one effect. Worker processes call it and die at a named point, once or twice, or
are stopped past their lease and continued after another one has called; a last worker, which
does not die, asks for the outcome. What was promised is judged at the end from the ledger of a
bank that is a process of its own, and from what each worker heard before it died.

In most rounds something is wrong with the workers besides (`TWISTS`): they change their
arguments, return what has yet to happen or is too large to be stored, have another contract than
the last worker, have a clock that is a year ahead or behind, close the connection that they were
lent, or see their record vanish while the tool runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import itertools
import json
import logging
import os
import random
import select
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psycopg
import redis as redis_py

from effectonce import (
    Downstream,
    EffectOnceError,
    Found,
    Guard,
    NotFound,
    Outcome,
    StoreUnavailable,
    current_effect,
)
from effectonce._core.codec import STORED_BYTES_MAX
from effectonce.stores import open_store
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.bank import Bank, Teller
from effectonce.testing.crash import TOOL_POINTS, CrashingStore, die
from tests.servers import redis
from tests.servers.postgres import Postgres

LEASE_S = 0.3
PATIENCE_S = 60.0
# while somebody is stopped, who may hold the file: its heart beats in a thread of its own
MEANWHILE_S = 5.0
# nobody was told anything definite: asking again is safe
LATER = ("StoreUnavailable", "InFlight", "GaveUp")
EXISTS = "SELECT count(*) FROM sqlite_schema WHERE name = 'payments'"
RUNNERS = 3
# downstream -> kind, points that a worker may be killed at, points that it may be stopped at
SETUPS = {
    "key": (
        "irreversible",
        ("before the claim", "claimed", "dispatched", "in flight", "effect done", "completed"),
    ),
    "none": (
        "write",
        ("before the claim", "claimed", "dispatched", "in flight", "effect done", "completed"),
    ),
    "probe": (
        "write",
        ("before the claim", "claimed", "dispatched", "in flight", "effect done", "completed"),
    ),
    "transaction": (
        "write",
        ("before the claim", "claimed", "in flight", "before the commit", "completed"),
    ),
}
STOP_POINTS = ("claimed", "effect done")
YEAR_S = 365 * 86_400.0
TWISTS = ("changes", "lazy", "huge", "contract", "ahead", "behind", "closes", "vanishes")
OTHER_CONTRACT = {"key": "none", "none": "probe", "probe": "none", "transaction": "none"}
HUGE = STORED_BYTES_MAX + 1
# a key or a window that the two deploys, or the two clocks, do not agree about
MAY_DOUBT = ("contract", "ahead", "behind")
# by a clock that is a year behind, it was done a year ago
KNOWN = {"behind": ("succeeded", "Expired")}
COUNTS = (
    "duplicates",
    "lost_outcomes",
    "false_failures",
    "phantom_successes",
    "wedged",
    "worker_errors",
)
EXACTLY_ONCE = ("key", "transaction")


# ---------------------------------------------------------------- a worker


def work(round_, point, how, patience_s=PATIENCE_S):
    """One process, one call; one that does not die asks until it is told something. Returns what
    it was told.
    """
    # the twists would fill the screen with warnings
    logging.getLogger("effectonce").setLevel(logging.ERROR)
    # the last worker is as it should be
    twist = round_["twist"] if point is not None or round_["twist"] == "vanishes" else ""
    store = opened(
        round_["store"], patience_s / 2, {"ahead": YEAR_S, "behind": -YEAR_S}.get(twist, 0.0)
    )
    guard = Guard(
        store if point is None else CrashingStore(store, at=point, how=how),
        cache=0,
        spool=round_["spool"],
    )
    insist(guard.spool.settle, patience_s)  # what an earlier process could not tell the store
    downstream = (
        OTHER_CONTRACT[round_["downstream"]] if twist == "contract" else round_["downstream"]
    )
    decorate = guard.tool(
        kind=SETUPS[downstream][0],
        downstream={"key": Downstream.key(), "probe": Downstream.probe()}.get(
            downstream, downstream
        ),
        lease_s=LEASE_S,
        separate_dispatch=point == "dispatched",
    )

    def pay(payment: dict) -> str:
        payment_id = payment["id"]
        if twist == "changes":
            payment["tries"] = payment.get("tries", 0) + 1
        if twist == "vanishes" and point not in TOOL_POINTS and downstream != "transaction":
            vanish(round_["store"], current_effect().ref.key)
        if downstream == "transaction":
            paid = _insert(payment_id, round_, point, how, closes=twist == "closes")
        else:
            paid = _pay(payment_id, round_, point, how, keyed=downstream == "key")
        return _twisted(paid, twist)

    def find(payment: dict):
        payment_id = payment["id"]
        with Teller(round_["port"]) as teller:
            found = teller.find(payment_id)
        return NotFound() if found is None else Found(found["receipt"])

    def call():
        with guard.step("soak", round_["id"]):
            if round_["colour"] == "sync":
                return told(
                    lambda: guard.call(
                        guarded(decorate(pay), find, downstream), {"payment": {"id": round_["id"]}}
                    )
                )
            return told(
                lambda: asyncio.run(_call_async(guard, decorate, pay, find, downstream, round_))
            )

    give_up_at = time.monotonic() + patience_s
    began = time.monotonic()
    while True:
        report = call()
        if point is not None or report["status"] not in LATER or time.monotonic() > give_up_at:
            return report | {"after_s": time.monotonic() - began}


def insist(call, patience_s=PATIENCE_S):
    """Until the store answers: it may be starting again."""
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            return call()
        except StoreUnavailable:
            if time.monotonic() > give_up_at:
                raise


def opened(where, wait_s=PATIENCE_S / 2, ahead_s=0.0):
    """A store by its URL, or SQLite by the path of its file, whose clock is that of its process."""
    if where.startswith("postgres"):
        return PostgresStore(where, timeout_s=wait_s)
    return (
        open_store(where)
        if "://" in where
        else SqliteStore(where, busy_s=wait_s, clock=lambda: time.time() + ahead_s)
    )


def vanish(where, key):
    """As a failover, an eviction or a hand would have it: past the store's own ops."""
    if where.startswith("postgres"):
        with psycopg.connect(where) as connection:
            connection.execute("DELETE FROM effectonce.effects WHERE key = %s", (key,))
    elif where.startswith("redis"):
        with contextlib.closing(redis_py.from_url(where)) as client:
            for name in client.scan_iter(f"*{key}*"):
                client.delete(name)
    else:
        with contextlib.closing(sqlite3.connect(where, timeout=PATIENCE_S)) as db, db:
            db.execute("DELETE FROM effects WHERE key = ?", (key,))


def guarded(tool, find, downstream):
    if downstream == "probe":
        tool.probe(find)
    return tool


def _twisted(paid, twist):
    """What the tool returns instead. Of an async insert that is known when it is awaited."""
    if inspect.isawaitable(paid):
        return _atwisted(paid, twist)
    return {"lazy": lambda: iter([paid]), "huge": lambda: paid.ljust(HUGE)}.get(
        twist, lambda: paid
    )()


async def _atwisted(paid, twist):
    return _twisted(await paid, twist)


async def _call_async(guard, decorate, pay, find, downstream, round_):
    async def apay(payment: dict) -> str:
        paid = pay(payment)
        return await paid if inspect.isawaitable(paid) else paid

    async def afind(payment: dict):
        return find(payment)

    apay.__name__ = "pay"
    return await guard.call(
        guarded(decorate(apay), afind, downstream), {"payment": {"id": round_["id"]}}
    )


def _pay(payment_id, round_, point, how, *, keyed):
    key = current_effect().downstream_key if keyed else None
    with Teller(round_["port"]) as teller:
        if point == "in flight":
            body = json.dumps({"payment_id": payment_id, "amount_minor": 1})
            teller._http.request(
                "POST", "/payments", body, {"Idempotency-Key": key} if keyed else {}
            )
            die(how)
        receipt = teller.pay(payment_id, 1, key=key)["receipt"]
    if point == "effect done":
        die(how)
    return receipt


def _insert(payment_id, round_, point, how, *, closes):
    connection = current_effect().connection
    if round_["store"].startswith("postgres"):
        insert = _insert_into_postgres if round_["colour"] == "sync" else _ainsert_into_postgres
        return insert(connection, payment_id, point, how, closes=closes)
    connection.execute("CREATE TABLE IF NOT EXISTS payments (payment_id TEXT)")
    row = connection.execute("INSERT INTO payments VALUES (?)", (payment_id,))
    if point in TOOL_POINTS:
        die(how)
    if closes:
        connection.close()
    return f"row {row.lastrowid}"


INSERT = "INSERT INTO payments (payment_id) VALUES (%s) RETURNING n"


def _insert_into_postgres(connection, payment_id, point, how, *, closes):
    row = connection.execute(INSERT, (payment_id,)).fetchone()
    if point in TOOL_POINTS:
        die(how)
    if closes:
        connection.close()
    return f"row {row[0]}"


async def _ainsert_into_postgres(connection, payment_id, point, how, *, closes):
    row = await (await connection.execute(INSERT, (payment_id,))).fetchone()
    if point in TOOL_POINTS:
        die(how)
    if closes:
        await connection.close()
    return f"row {row[0]}"


def told(call):
    try:
        outcome = call()
    except (
        EffectOnceError,
        TypeError,
    ) as error:
        # the latter: a transaction whose tool returns what has yet to happen is rolled back
        return {"status": type(error).__name__}
    assert isinstance(outcome, Outcome)
    # a huge one is a receipt and blanks
    value = outcome.value if outcome.value is None else outcome.value.rstrip()
    return {"status": outcome.status, "value": value, "settled_by": outcome.settled_by}


# ---------------------------------------------------------------- a runner: forks workers, one
# round after the other


def start(job):
    """Fork a worker; returns its pid and the pipe on which it reports."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    try:
        os.setpgid(0, 0)  # the kernel hangs up on stopped processes of an orphaned group
        os.close(reader)
        os.write(writer, json.dumps(job()).encode())
        os._exit(0)
    except BaseException as error:
        sys.stderr.write(f"worker failed: {type(error).__name__}: {error}\n")
        os._exit(3)


def end(pid, reader):
    """Wait for a worker; returns how it ended and what it was told, if it lived to say so."""
    return ended(os.waitpid(pid, 0)[1], reader)


def ended(status, reader):
    with os.fdopen(reader, "rb") as pipe:
        report = pipe.read()
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}", None
    return f"exit {os.WEXITSTATUS(status)}", json.loads(report) if report else None


def run_killed(round_):
    """Die once or twice, then ask."""
    reports, killed = [], []
    for point in round_["points"]:
        how_it_ended, report = end(*start(lambda: work(round_, point, signal.SIGKILL)))  # noqa: B023
        if how_it_ended == f"signal {signal.SIGKILL.value}":
            killed.append(point)
        reports.append(
            report or {"status": how_it_ended if how_it_ended.startswith("exit") else "killed"}
        )
    return {"killed": killed, "told": [*reports, end(*start(lambda: work(round_, None, None)))[1]]}


def run_stopped(round_):
    """Stop past the lease while somebody else calls, continue, then ask."""
    (point,) = round_["points"]
    pid, reader = start(lambda: work(round_, point, signal.SIGSTOP))
    _, status = os.waitpid(pid, os.WUNTRACED)
    stopped = os.WIFSTOPPED(status)
    other = end(*start(lambda: work(round_, None, None, MEANWHILE_S)))[1]
    if stopped:
        os.kill(pid, signal.SIGCONT)
    # the store may have been gone before it came to stop
    late = (end(pid, reader) if stopped else ended(status, reader))[1]
    return {
        "stopped": [point] if stopped else [],
        "told": [late, other, end(*start(lambda: work(round_, None, None)))[1]],
    }


def runner(rounds, progress):
    """A process that works off its share of the rounds."""
    reports = []
    for round_ in rounds:
        reports.append(round_ | (run_stopped if round_["stop"] else run_killed)(round_))
        os.write(progress, b"." * max(1, len(reports[-1].get("killed", ()))))
    return reports


# ---------------------------------------------------------------- the soak


def plan(kills, stops, store, ports, seed):
    """Rounds that visit every downstream, colour and point, twice-killed ones among them."""
    rng, rounds, planned = random.Random(seed), [], 0
    setups = {
        name: setup
        for name, setup in SETUPS.items()
        if name != "transaction" or not store.startswith("redis")
    }

    def add(downstream, points, *, stop):
        number = len(rounds)
        common = {
            "store": store,
            "port": ports[downstream == "key"],
            "colour": ("sync", "async")[number // 2 % 2],
        }
        twist = rng.choice(TWISTS) if not stop and number % 3 else ""
        rounds.append(
            common
            | {
                "id": f"pay_{number}",
                "downstream": downstream,
                "points": points,
                "stop": stop,
                "twist": twist,
            }
        )

    while planned < kills:
        for downstream, (_, points) in setups.items():
            point = points[planned // len(setups) % len(points)]
            add(
                downstream,
                [point, rng.choice(points)] if rng.random() < 0.3 else [point],
                stop=False,
            )
            planned += 1
    for number in range(stops):
        downstream = list(setups)[number % len(setups)]
        point = "claimed" if downstream == "transaction" else STOP_POINTS[number // len(setups) % 2]
        add(downstream, [point], stop=True)
    return rounds


def judge(reports, effects):
    """Hold what every worker was told against what happened. The rounds that broke a promise are
    shown as they were.
    """
    bad, broken = Counter(), []
    for report in reports:
        before = bad.total()
        count, final = effects[report["id"]], report["told"][-1]
        told_ok = [told for told in report["told"] if told and told["status"] == "succeeded"]
        told_failed = [told for told in report["told"] if told and told["status"] == "failed"]
        bad["duplicates"] += count > 1
        bad["false_failures"] += bool(told_failed) and count > 0
        bad["phantom_successes"] += bool(told_ok) and count == 0
        lost = told_ok and (
            final["status"] not in KNOWN.get(report["twist"], ("succeeded",))
            or differ(told_ok, report["twist"])
        )
        once = report["downstream"] in EXACTLY_ONCE and report["twist"] not in MAY_DOUBT
        bad["lost_outcomes"] += bool(lost) or (
            final["status"] != "succeeded" if once else final["status"] == "failed"
        )
        bad["wedged"] += final["after_s"] > LEASE_S + 1 or final["status"] in LATER
        bad["worker_errors"] += any(
            told["status"].startswith("exit") for told in report["told"] if told
        )
        if bad.total() > before:
            broken.append(report | {"effects": count})
    return {name: bad[name] for name in COUNTS} | {"broken": broken}


def differ(told_ok, twist):
    """Did two callers get two results? One that was too large to be stored is known as done, and
    not shown again.
    """
    return (
        len({told["value"] for told in told_ok if twist != "huge" or told["value"] is not None}) > 1
    )


def table(reports, effects):
    """One row per downstream and point."""
    rows = {}
    for report in reports:
        for point in (
            *report.get("killed", ()),
            *(f"stopped: {p}" for p in report.get("stopped", ())),
        ):
            row = rows.setdefault((report["downstream"], point), Counter())
            row["times"] += 1
            row["effects"] += effects[report["id"]]
            row[report["told"][-1]["status"]] += 1
    return [{"downstream": d, "point": p, **row} for (d, p), row in sorted(rows.items())]


def count_effects(store, ledgers):
    effects = Counter()
    for ledger in ledgers:
        effects.update(entry["payment_id"] for entry in ledger)
    if store.startswith("redis"):
        return effects
    store = opened(store)
    with store.transaction() as transaction:
        exists = (
            isinstance(store, PostgresStore) or transaction.connection.execute(EXISTS).fetchone()[0]
        )
        rows = (
            transaction.connection.execute("SELECT payment_id FROM payments").fetchall()
            if exists
            else []
        )
    store.close()
    effects.update(payment_id for (payment_id,) in rows)
    return effects


@contextlib.contextmanager
def served(store, folder):
    """Where the records are kept: a file, or a private server that syncs each write to its disk.
    Also how to kill and restart it.
    """
    if store == "sqlite":
        yield str(Path(folder, "effects.db")), None
    elif store == "redis":
        server = redis.Server(Path(folder, "redis"), fsync="always")
        yield server.url, lambda: (server.stop(), server.start())
        server.stop()
    else:
        with Postgres() as server:
            url = server.database()
            server.execute("CREATE TABLE payments (n serial, payment_id text)", url)
            yield url, lambda: (server.kill(), server.start())


class Saboteur:
    """Kills the server again and again while the workers work, evenly over the run."""

    def __init__(self, restart, times, rounds):
        self._restart, self._every, self._seen, self.times = (
            restart,
            rounds / times if times else 0,
            0,
            0,
        )

    def advance(self, n):
        self._seen += n
        while self._every and self._seen >= (self.times + 1) * self._every:
            self._restart()
            self.times += 1


def soak(kills, stops, seed, store, store_kills, on_progress):
    with (
        tempfile.TemporaryDirectory(prefix="effectonce-soak-") as folder,
        served(store, folder) as (where, restart),
        Bank(Path(folder, "plain"), honours_keys=False) as plain,
        Bank(Path(folder, "keyed"), honours_keys=True) as keyed,
    ):
        rounds = plan(kills, stops, where, (plain.port, keyed.port), seed)
        for round_ in rounds:
            round_["spool"] = str(Path(folder, "spool"))
        saboteur = Saboteur(restart, store_kills, len(rounds))
        began = time.monotonic()
        progress = itertools.count(1)

        def advance(n):
            for _ in range(n):
                on_progress(next(progress))
            saboteur.advance(n)

        reports = run_all(rounds, advance)
        effects = count_effects(where, (plain.ledger(), keyed.ledger()))
    return {
        "kills": sum(len(report.get("killed", ())) for report in reports),
        "stops": sum(len(report.get("stopped", ())) for report in reports),
        "store_kills": saboteur.times,
        "effects_asked_for": len(reports),
        "downstreams": sorted({report["downstream"] for report in reports}),
        "seconds": round(time.monotonic() - began, 1),
        **judge(reports, effects),
        "table": table(reports, effects),
    }


def run_all(rounds, on_progress):
    progress, tell = os.pipe()
    runners = {}
    for share in range(RUNNERS):
        pid, reader = start(lambda: runner(rounds[share::RUNNERS], tell))  # noqa: B023
        runners[reader] = (pid, b"")
    reports = []
    while runners:
        for ready in select.select([progress, *runners], [], [])[0]:
            chunk = os.read(ready, 1 << 16)
            if ready == progress:
                on_progress(len(chunk))
            elif chunk:
                runners[ready] = (runners[ready][0], runners[ready][1] + chunk)
            else:
                pid, said = runners.pop(ready)
                os.waitpid(pid, 0)
                os.close(ready)
                reports += json.loads(said)
    return reports


def command(soak, doc, **counts):
    """Run a soak from the command line: print what came of it as JSON, and return it."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in counts.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--store", choices=("sqlite", "postgres", "redis"), default="sqlite")
    result = soak(**vars(parser.parse_args()), on_progress=show_progress)
    print(json.dumps(result))
    return result


def show_progress(done):
    if done % 100 == 0:
        print(f"{done} done", file=sys.stderr, flush=True)


def main():
    result = command(soak, __doc__, kills=2000, stops=200, seed=1, store_kills=0)
    # while the store itself is away, everybody waits
    late = 0 if result["store_kills"] else result["wedged"]
    sys.exit(1 if late or any(result[name] for name in COUNTS if name != "wedged") else 0)


if __name__ == "__main__":
    main()
