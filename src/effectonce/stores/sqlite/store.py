"""SQLite: the embedded default, durable, for many threads and processes of one machine.

Theory of operation. One connection, one lock, and a list of jobs. The holder of the lock works
off everything that waits, in one transaction and so with one fsync, however many callers share
it (group commit); a lone caller does its own job and pays for no thread. Async callers wait for
a writer thread that does the same. Readers' jobs are answered from a plain read, so a replay
never writes.

Inside the transaction a record is read, put through the transition table and written back.
`BEGIN IMMEDIATE` holds the database's write lock around all three, which makes them one atomic
step.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from effectonce._core.ops import Op, Recorded
from effectonce._core.record import Request
from effectonce.errors import StoreUnavailable
from effectonce.stores._clock_steps import ClockNote, Steadiness
from effectonce.stores.base import Capabilities, Finding, in_a_signal_handler
from effectonce.stores.sqlite import faults, forks
from effectonce.stores.sqlite.batch import MUST_WRITE, PendingWrite, finish_all
from effectonce.stores.sqlite.connection import SqliteConnection
from effectonce.stores.sqlite.ops import BEFORE_A_SEND, ORDINARY, SqliteOps
from effectonce.stores.sqlite.transaction import (
    AsyncLent,
    Handover,
    SqliteTransaction,
    ToolTransaction,
)

R = TypeVar("R")
C = TypeVar("C", bound=SqliteConnection)
BATCH_MAX = 256
FOLLOW_S = 0.1  # how long a follower waits before it looks for itself; it is woken long before


class SqliteStore:
    """One SQLite file shared by every thread and process of this machine."""

    capabilities = Capabilities(durable=True, transactions=True)
    has_cells = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        busy_s: float = 5.0,
        clock: Callable[[], float] = time.time,
        ticks: Callable[[], float] | None = None,
    ) -> None:
        """Open nothing yet. Only tests pass *clock*, and *ticks* that no clock step touches."""
        self.path = Path(path).absolute()  # a later chdir must not lead to another, empty store
        self._busy_s = busy_s
        self._clock, self._steadiness = clock, Steadiness(clock, ticks)
        self._ops = SqliteOps(clock, self._steadiness)
        self._start()
        forks.STORES.add(self)

    def _start(self) -> None:
        """Everything that must not cross a fork: connection, lock, jobs, threads."""
        self._jobs: deque[PendingWrite] = deque()
        self._lock = threading.RLock()
        self._opening = threading.RLock()  # after the other one, where both are held
        self._wake = threading.Event()
        self._writer: threading.Thread | None = None
        self._main: SqliteConnection | None = None
        # all of them, also those that are lent to a tool
        self._connections: list[SqliteConnection] = []
        self._beginner: ThreadPoolExecutor | None = None
        self._steady: ClockNote | None = None  # as this file has it

    def _connect(self) -> SqliteConnection:
        if self._main is not None and self._main.at_rest:
            self._close_main()  # it shows the file as it was
        if self._main is None:
            self._main = self._open(SqliteConnection)
        return self._main

    def _open(self, kind: type[C]) -> C:
        with self._opening:
            forks.check(self.path)
            connection = kind(self.path, self._busy_s)
            self._connections.append(connection)
        return connection

    # ------------------------------------------------------------ sync and async

    def apply(self, op: Op[R], /) -> R:
        # there is no public way to ask
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            raise in_a_signal_handler(self.path)
        try:
            if self._jobs or not self._lock.acquire(False):  # positional: by name it costs a dict
                return cast(R, self._together(PendingWrite(op)))
            # Alone: no job, no waiting, no thread.
            connection = self._connect()
            reply = self._ops.read(connection, op)
            return self._commit(connection, (op,))[0] if reply is MUST_WRITE else reply  # type: ignore[no-any-return]
        except Exception as error:  # noqa: BLE001
            # whatever it is, it is not known what was written
            raise (raised := self._unavailable(error)) from raised.__cause__
        finally:
            try:
                # at once: a signal may strike where a function of ours begins, and all others
                # would wait without end
                self._lock.release()
            except RuntimeError:
                pass  # it is not ours
            else:
                self._wake_next()

    def look(self, request: Request, /) -> Recorded | None:
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            return None  # a signal handler's: it would see what is not committed yet
        try:
            if self._main is None or self._jobs or not self._lock.acquire(False):
                return None
            known = self._main.look(request, self._clock())
        except sqlite3.Error:
            return None  # the claim will meet it too, and raise it
        finally:
            try:
                self._lock.release()  # as in `apply`
            except RuntimeError:
                pass
            else:
                self._wake_next()
        return known if isinstance(known, Recorded) else None

    async def aapply(self, op: Op[R], /) -> R:
        job = PendingWrite(op)
        if self._look(job):
            return cast(R, job.reply)
        if self._writer is None:
            self._hire_writer()
        job.loop = asyncio.get_running_loop()
        job.future = job.loop.create_future()
        self._jobs.append(job)
        if not self._wake.is_set():  # setting it again would go through a lock
            self._wake.set()
        return cast(R, await job.future)

    def _look(self, job: PendingWrite) -> bool:
        """A replay needs no thread: read on the loop, if enough and no caller is in the way."""
        try:
            if (
                self._main is None
                or self._main.at_rest
                or self._jobs
                or not self._lock.acquire(False)
            ):
                return False
            job.answer(self._ops.read(self._main, job.op))
            job.looked = True
            return job.done
        except Exception as error:  # noqa: BLE001  # as in `apply`
            raise (raised := self._unavailable(error)) from raised.__cause__
        finally:
            self._hand_over()

    def examine(self) -> tuple[Finding, ...]:
        """How this file is set up. A file that is not there is not made by looking."""
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            raise in_a_signal_handler(self.path)
        with self._lock:
            try:
                if not self.path.exists():
                    raise StoreUnavailable(
                        f"there is no file {self.path}."
                    ) from FileNotFoundError()
                return self._connect().examine(self._clock())
            except (sqlite3.Error, OSError) as error:
                raise (raised := self._unavailable(error)) from raised.__cause__

    def close(self) -> None:
        """Close every connection. A later call opens new ones."""
        with self._lock:
            self._close_main()
            if self._beginner is not None:
                self._beginner.shutdown(wait=False)
                self._beginner = None

    def _close_main(self) -> None:
        connection, self._main = self._main, None
        if connection is not None:
            self._connections.remove(connection)
            connection.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be half gone
            self.close()

    def _hire_beginner(self) -> ThreadPoolExecutor:
        """Async transactions wait in one thread: in the loop's they would block others' COMMIT."""
        if self._beginner is None:
            self._beginner = ThreadPoolExecutor(1, "effectonce-sqlite-begin")
        return self._beginner

    def _hire_writer(self) -> None:
        with self._lock:
            if self._writer is None:
                wake = self._wake
                # or the thread would never stop waiting
                store = weakref.ref(self, lambda _: wake.set())
                writer = threading.Thread(
                    target=_write_for_async_callers,
                    args=(store, wake),
                    name="effectonce-sqlite",
                    daemon=True,
                )
                try:
                    writer.start()
                except RuntimeError as error:  # no room for a thread, or the interpreter ends
                    raise self._unavailable(error) from error
                self._writer = writer

    # ------------------------------------------------------------ group commit

    def _together(self, job: PendingWrite) -> Any:
        """Join those who wait: lead them, or be taken along."""
        self._jobs.append(job)
        while not job.done:
            try:
                if self._lock.acquire(blocking=False):
                    self._lead(job)
                else:
                    self._follow(job)
            finally:
                self._hand_over()
        if job.error is not None:
            raise job.error
        return job.reply

    def _lead(self, job: PendingWrite) -> None:
        """Work for all callers that wait, until our own job is done."""
        while not job.done:
            self._work()
            # _work() may have done it
            if not job.done and not self._jobs:  # type: ignore[redundant-expr]
                job.error, job.done = (
                    self._unavailable(InterruptedError("an interrupted caller lost it")),
                    True,
                )

    def _hand_over(self) -> None:
        """Give the lock back, if it is ours, and let one of those who came meanwhile lead.

        Asked of the lock itself: a signal may strike between taking it and noting that it was
        taken.
        """
        # there is no public way to ask
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            self._lock.release()
            self._wake_next()

    def _wake_next(self) -> None:
        if self._jobs:
            with contextlib.suppress(IndexError):  # another thread took it
                self._jobs[0].wake()

    def _follow(self, job: PendingWrite) -> None:
        """Another caller holds the lock: it takes our job along, or leaves the lead to us.

        Not by waiting for the lock: sixty waiters would pass it from one to the next only to
        find that their jobs are done, and a caller that came in between would commit alone.
        """
        job.follower = threading.Event()
        if not job.done:
            job.follower.wait(FOLLOW_S)

    def _work(self) -> None:
        """Work off what waits. The lock is held."""
        jobs: list[PendingWrite] = []
        failure: BaseException = InterruptedError("the caller that wrote for all was interrupted")
        try:
            while self._jobs and len(jobs) < BATCH_MAX:
                jobs.append(self._jobs.popleft())
            connection = self._connect()
            for job in jobs:
                if not job.looked:
                    job.answer(self._ops.read(connection, job.op))
            writes = [job for job in jobs if not job.done]
            if writes:
                self._write_all(connection, writes)
        except Exception as error:  # noqa: BLE001
            # one caller works for all: it is raised to each, and none may wait without end
            failure = error
        finally:
            for job in jobs:
                if not job.done:
                    job.error, job.done = self._unavailable(failure), True
            self._deliver(jobs)

    def _write_all(self, connection: SqliteConnection, writes: list[PendingWrite]) -> None:
        try:
            for job, reply in zip(
                writes, self._commit(connection, [job.op for job in writes]), strict=True
            ):
                job.answer(reply)
        except faults.TOO_LARGE:
            if len(writes) == 1:
                raise
            for job in writes:  # nothing was written, and only one of them is at fault
                try:
                    self._write_all(connection, [job])
                except faults.TOO_LARGE as error:
                    job.error, job.done = self._unavailable(error), True

    def _commit(self, connection: SqliteConnection, ops: Sequence[Op[Any]]) -> list[Any]:
        """Write what these ops change in one transaction; their replies, when it is on the disk."""
        for op in ops:  # not `any(...)`: a generator costs more than the look
            if type(op) in BEFORE_A_SEND:
                connection.check_file()
                break
        if len(ops) == 1 and (reply := self._write_alone(connection, ops[0])) is not None:
            return [reply]
        try:
            connection.begin()
            steady = self._look_at_the_clock(connection)
            replies = [self._ops.write(connection, op) for op in ops]
            connection.commit()
            self._steady = steady
        finally:
            connection.roll_back()  # nothing, if it was committed
        return replies

    def _write_alone(self, connection: SqliteConnection, op: Op[Any]) -> Any:
        """One statement, which SQLite commits by itself. None: it takes more, nothing written."""
        if type(op) not in ORDINARY or not self._steadiness.holds(self._steady):
            return None
        try:
            return self._ops.write_ordinary(connection, op) if connection.take_turn() else None
        finally:
            connection.roll_back()

    def _look_at_the_clock(self, connection: SqliteConnection) -> ClockNote:
        """A step of the clock is noted in the same COMMIT as whatever is sent after it."""
        known = self._steady
        return (
            known
            if known is not None and self._steadiness.holds(known)
            else connection.steady(self._steadiness)
        )

    def _deliver(self, jobs: list[PendingWrite]) -> None:
        for job in jobs:
            job.wake()
        for loop in {job.loop for job in jobs if job.loop is not None}:
            mine = [job for job in jobs if job.loop is loop]
            with contextlib.suppress(RuntimeError):  # the loop was closed: its callers are gone
                loop.call_soon_threadsafe(finish_all, mine)

    def _unavailable(self, error: BaseException) -> StoreUnavailable:
        return faults.unavailable(self.path, error)

    # ------------------------------------------------------------ transactions

    @contextlib.contextmanager
    def transaction(self) -> Iterator[ToolTransaction]:
        """The tool's writes and its record in one COMMIT. The file's writers wait for the tool."""
        transaction = self._begin()
        try:
            yield transaction
        finally:
            try:
                self._end(transaction)
            except BaseException:
                # a signal, perhaps, that struck where it begins: every process would find the
                # file locked
                self._end(transaction)
                raise

    @contextlib.asynccontextmanager
    async def atransaction(self) -> AsyncIterator[AsyncLent]:
        handover = Handover(self._begin, self._end)
        try:
            transaction = await asyncio.get_running_loop().run_in_executor(
                self._hire_beginner(), handover.begin
            )
        except asyncio.CancelledError:
            handover.abandon()
            raise
        except RuntimeError as error:
            # no room for a thread, or the interpreter ends; the next one to come may still begin it
            handover.abandon()
            raise self._unavailable(error) from error
        try:
            yield AsyncLent(transaction)
        finally:
            self._end(transaction)

    def _begin(self) -> ToolTransaction:
        try:
            connection = self._open(SqliteTransaction)
            lent = ToolTransaction(
                connection, partial(self._ops.change, connection), self._unavailable
            )
            try:
                connection.check_file()
                connection.begin()
            except BaseException:
                self._end(lent)
                raise
        except (sqlite3.Error, OSError, StoreUnavailable) as error:
            raise (raised := self._unavailable(error)) from raised.__cause__
        return lent

    def _end(self, transaction: ToolTransaction) -> None:
        transaction.held.end()
        with contextlib.suppress(ValueError):  # a signal struck when it was all but done
            self._connections.remove(transaction.held)


def _write_for_async_callers(store: weakref.ref[SqliteStore], wake: threading.Event) -> None:
    """The writer thread: it lives as long as its store does."""
    while True:
        wake.wait()
        wake.clear()
        this = store()
        if this is None:
            return
        while this._jobs:  # noqa: SLF001  # the same module's
            with this._lock:  # noqa: SLF001
                this._work()  # noqa: SLF001
        del this
