"""Who carries jobs to the server and back: threads take turns at a few connections, an event
loop keeps a few of its own.

Both work the same way. A job that finds a connection idle goes out at once, alone. One that does
not waits, and the connection that is free first takes along all jobs that wait, in one
transaction: the busier it is, the more calls share a round trip and a commit. The tasks that an
answer wakes ask again one after the other: they are waited for, so that the first of them does
not go alone.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from effectonce.stores.base import in_a_signal_handler
from effectonce.stores.postgres.batch import PendingQuery
from effectonce.stores.postgres.connection import ConnectionLost, PostgresConnection, ServerError
from effectonce.stores.postgres.pipeline import BATCH_MAX, Habits, Talk, talk
from effectonce.stores.postgres.schema import Unfit

Open = Callable[[float], PostgresConnection]  # connects, until the given moment


def fail(jobs: Iterable[PendingQuery], error: Exception) -> None:
    """What became of these is not known."""
    for job in jobs:
        if not job.done:
            job.refuse(error)


# ---------------------------------------------------------------- threads


class _Turn:
    """A thread that waits for a connection, or for another thread that takes its job along."""

    __slots__ = ("gate", "jobs", "thread", "wire", "won")

    def __init__(self, jobs: list[PendingQuery]) -> None:
        self.jobs, self.won, self.thread = jobs, False, threading.get_ident()
        self.wire: PostgresConnection | None = None
        self.gate = threading.Lock()
        self.gate.acquire()

    def release(self, _: None) -> None:
        self.gate.release()


class ThreadPool:
    """A few connections for many threads."""

    def __init__(self, open_wire: Open, habits: Habits, limit: int) -> None:
        self._open, self._habits, self._limit = open_wire, habits, limit
        self._lock = threading.RLock()  # it knows who holds it
        self._idle: list[PostgresConnection] = []
        # threads. One that comes again was interrupted before it could say that it had ended
        self._leaders: set[int] = set()
        self._waiting: deque[_Turn] = deque()

    def do(self, jobs: list[PendingQuery]) -> None:
        """Return when these jobs are done."""
        me = threading.get_ident()
        # there is no public way to ask
        if self._lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001
            raise in_a_signal_handler("this store")
        with self._lock:
            if len(self._leaders) < self._limit or me in self._leaders:
                self._leaders.add(me)
                turn = None
                wire = self._idle.pop() if self._idle else None
            else:
                turn = _Turn(jobs)
                self._waiting.append(turn)
                wire = None
        if turn is None:
            self._lead(wire, jobs)
        else:
            self._follow(turn)

    def _follow(self, turn: _Turn) -> None:
        """Wait until a connection is free, our job is done, or the time is over."""
        try:
            turn.gate.acquire(timeout=max(0.0, turn.jobs[0].give_up_at - time.monotonic()))
        except BaseException:
            self._step_back(turn)
            raise
        with self._lock:
            jobs = self._take_along(turn.jobs) if turn.won else []
            late = turn in self._waiting
            if late:
                self._waiting.remove(turn)
        if late:
            fail(turn.jobs, ConnectionLost(f"all {self._limit} connections were busy all the time"))
        elif turn.won:
            self._lead(turn.wire, jobs)
        else:
            self._await(turn)

    def _step_back(self, turn: _Turn) -> None:
        """Interrupted while waiting: leave the queue, and pass on what was handed to us."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
        if turn.won:
            self._hand_over(turn.wire)

    def _await(self, turn: _Turn) -> None:
        """Another thread took our job as we stopped waiting: same deadline, so it is not long."""
        while not all(job.done for job in turn.jobs):
            turn.gate.acquire(timeout=0.01)

    def _take_along(self, jobs: list[PendingQuery]) -> list[PendingQuery]:
        jobs = list(jobs)
        followers = []
        while self._waiting and len(jobs) < BATCH_MAX:
            followers.append(self._waiting.popleft())
            jobs += followers[-1].jobs
        for turn in followers:
            turn.jobs[-1].notify = turn.release
        return jobs

    def _lead(self, wire: PostgresConnection | None, jobs: list[PendingQuery]) -> None:
        """Do all jobs on the list; then let the next one lead."""
        well, failure = False, None
        try:
            if wire is not None and wire.stale():
                wire.close()
                wire = None
            if wire is None:
                wire = self._open(min(job.give_up_at for job in jobs))
            converse(talk(wire, jobs, self._habits), wire)
            well = True
        except (ConnectionLost, ServerError, Unfit) as error:
            failure = error
        finally:
            if not well and wire is not None:
                wire.close()
                wire = None
            self._hand_over(wire)
            if not well:
                fail(
                    jobs, failure or ConnectionLost("the caller that asked for all was interrupted")
                )

    def _hand_over(self, wire: PostgresConnection | None) -> None:
        with self._lock:
            self._leaders.discard(threading.get_ident())
            if self._waiting:
                turn = self._waiting.popleft()
                self._leaders.add(turn.thread)
                turn.wire, turn.won = wire, True
                turn.gate.release()
            elif wire is not None:
                self._idle.append(wire)

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()


def converse(talking: Talk, wire: PostgresConnection) -> None:
    """Run a conversation to its end, blocking."""
    try:
        give_up_at = next(talking)
        while True:
            try:
                results = wire.wait(give_up_at)
            except ServerError as error:
                give_up_at = talking.throw(error)
            else:
                give_up_at = talking.send(results)
    except StopIteration:
        return


# ---------------------------------------------------------------- an event loop


class LoopConnection:
    """One connection of an event loop."""

    def __init__(self, lanes: LoopPool) -> None:
        self._lanes, self._loop = lanes, lanes.loop
        self.wire: PostgresConnection | None = None
        self.busy = False
        self._jobs: list[PendingQuery] = []
        self._talk: Talk | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[PostgresConnection] | None = None

    def work(self) -> None:
        """Take along all jobs that wait."""
        waiting = self._lanes.waiting
        while waiting:
            self._jobs = self._lanes.take_along()
            if not self._jobs:
                continue
            self.busy = True
            if self.wire is not None and self.wire.stale():
                self.drop()
            if self.wire is None:
                self._connect()
                return
            if self._start():
                return
        self.busy = False

    def _start(self) -> bool:
        """Send the first question; True: an answer is to come."""
        assert self.wire is not None
        try:
            self._talk = talk(self.wire, self._jobs, self._lanes.habits)
            next(self._talk)
            self._expect()
        except ConnectionLost as error:
            self._break(error)
            return False
        except StopIteration:  # there was nothing that could be asked
            self._talk = None
            return False
        return True

    def _expect(self) -> None:
        if self._watch is None:
            first = min([job.give_up_at for job in self._jobs if not job.done])
            self._watch = self._loop.call_later(
                max(0.0, first - time.monotonic()), self._look_at_the_clock
            )
        assert self.wire is not None
        if not self.wire.flushed:
            self._loop.add_writer(self.wire.fd, self._readable)

    def _readable(self) -> None:
        assert self.wire is not None
        if self._talk is None:
            self._hear()
            return
        try:
            flushing = not self.wire.flushed
            try:
                results = self.wire.receive()
                if flushing and self.wire.flushed:
                    self._loop.remove_writer(self.wire.fd)
                if results is None:
                    return
                self._talk.send(results)
                self._expect()
            except ServerError as error:
                self._talk.throw(error)
                self._expect()
        except ConnectionLost as error:
            self._break(error)
            self.work()
        except StopIteration:
            self._talk = None
            self.work()

    def _hear(self) -> None:
        """No request is open: the server says that it closes the connection."""
        assert self.wire is not None
        try:
            self.wire.pgconn.consume_input()
        except Exception as error:  # noqa: BLE001
            # whatever is wrong with an idle connection, no caller waits for it
            self._break(ConnectionLost(str(error)))

    def _look_at_the_clock(self) -> None:
        """One timer for all: looks once per deadline, not per call. Jobs with more time wait on."""
        self._watch = None
        if not self.busy or self._talk is None:
            return
        now = time.monotonic()
        late = ConnectionLost("no answer in time")
        fail((job for job in self._jobs if job.give_up_at <= now), late)
        left = [job.give_up_at for job in self._jobs if not job.done]
        if left:
            self._watch = self._loop.call_later(min(left) - now, self._look_at_the_clock)
        else:
            self._break(late)
            self.work()

    def _break(self, error: Exception) -> None:
        self.drop()
        jobs, self._jobs, self._talk = self._jobs, [], None
        fail(jobs, error)

    def drop(self) -> None:
        """Close the connection. The loop may be closed already."""
        wire, self.wire = self.wire, None
        if wire is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(wire.fd)
                self._loop.remove_writer(wire.fd)
            wire.close()

    def _connect(self) -> None:
        self._connecting = self._loop.create_task(
            self._open(min(job.give_up_at for job in self._jobs))
        )
        self._connecting.add_done_callback(self._connected)

    async def _open(self, give_up_at: float) -> PostgresConnection:
        try:
            async with asyncio.timeout(max(0.0, give_up_at - time.monotonic()) + 1.0):
                return await asyncio.to_thread(self._lanes.open, give_up_at)
        except TimeoutError:
            raise ConnectionLost("no connection in time") from None

    def _connected(self, connecting: asyncio.Task[PostgresConnection]) -> None:
        """Send what waits, or say why not. A shutdown may cancel *connecting* before it began."""
        error = (
            ConnectionLost("the task that connected for all was cancelled")
            if connecting.cancelled()
            else connecting.exception()
        )
        if isinstance(error, Exception):
            self._break(error)
        else:
            self.wire = connecting.result()
            self._loop.add_reader(self.wire.fd, self._readable)
            if self._start():
                return
        self.work()


class LoopPool:
    """The connections of one event loop, and the jobs that wait for one."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, open_wire: Open, habits: Habits, limit: int
    ) -> None:
        self.loop, self.open, self.habits = loop, open_wire, habits
        self.waiting: deque[PendingQuery] = deque()
        self._crowded = self._waking = False
        self._lanes = [LoopConnection(self) for _ in range(limit)]

    async def do(self, jobs: list[PendingQuery]) -> None:
        """Return when these jobs are done. If the caller is cancelled, they go on without it."""
        done, left = self.loop.create_future(), len(jobs)

        def notify(_: None) -> None:
            nonlocal left
            left -= 1
            if left == 0 and not done.done():
                done.set_result(None)

        for job in jobs:
            job.notify = notify
        self.waiting.extend(jobs)
        self._wake()
        await done

    def do_one(self, job: PendingQuery) -> asyncio.Future[None]:
        """The same for one job."""
        done: asyncio.Future[None] = self.loop.create_future()
        job.notify = done.set_result
        self.waiting.append(job)
        self._wake()
        return done

    def _wake(self) -> None:
        """Begin at once, or, if the last round trip was shared, when all who can ask have asked."""
        if not self._crowded:
            self._begin()
        elif not self._waking:
            self._waking = True
            self.loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._waking = False
        for lane in self._lanes:
            if not lane.busy:
                lane.work()
                break

    def take_along(self) -> list[PendingQuery]:
        """All jobs that wait, but for those whose time was over before their turn came."""
        waiting = self.waiting
        jobs = [waiting.popleft() for _ in range(min(len(waiting), BATCH_MAX))]
        self._crowded = len(jobs) > 1
        now = time.monotonic()
        if min([job.give_up_at for job in jobs]) > now:
            return jobs
        fail(
            (job for job in jobs if job.give_up_at <= now),
            ConnectionLost("all connections were busy all the time"),
        )
        return [job for job in jobs if not job.done]

    def close(self) -> None:
        """From any thread."""
        if self.loop.is_running():
            self.loop.call_soon_threadsafe(self._drop)
        else:
            self._drop()

    def _drop(self) -> None:
        for lane in self._lanes:
            if not lane.busy or self.loop.is_closed():
                lane.drop()
