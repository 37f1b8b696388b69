"""Letters as a file, and from a file into another store: exactly, again without effect, and
every bad line with its number.
"""

import base64
import hashlib
import io
import json
import stat

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effectonce import ContractViolation, Guard, Keyring, NotSent, State, current_effect
from effectonce._core import ops
from effectonce.dead_letters import Imported, LineProblem
from effectonce.dead_letters._file import write_line
from effectonce.stores.memory import MemoryStore
from effectonce.stores.postgres import PostgresStore
from effectonce.stores.redis import RedisStore
from effectonce.stores.sqlite import SqliteStore
from effectonce.testing.clock import FakeClock
from tests.dead_letters.shop import BY, QUICK, Shop
from tests.servers import redis

OPENERS = {
    "memory": lambda _, clock: MemoryStore(clock=clock),
    "sqlite": lambda asked, clock: SqliteStore(
        asked.getfixturevalue("tmp_path") / "other.db", clock=clock
    ),
    "postgres": lambda asked, clock: PostgresStore(
        asked.getfixturevalue("postgres").emptied(), clock=clock
    ),
    "redis": lambda _, clock: RedisStore(redis.emptied(redis.server()).url, clock=clock),
}


def exported(letters, **wanted):
    file = io.BytesIO()
    letters.export(file, **wanted)
    return file.getvalue()


def shown(letter):
    """A letter without what a new home changes: the record's own times and owners."""
    fields = msgspec.structs.asdict(letter)
    del fields["record"], fields["given_up_at"], fields["age_s"]
    return fields | {
        "request": _plain(letter.record.request),
        "evidence": letter.record.evidence,
        "state": letter.record.state,
    }


def _plain(request):
    return msgspec.structs.replace(
        request, terms=msgspec.structs.replace(request.terms, resend_s=0.0)
    )


@pytest.mark.parametrize("backend", OPENERS)
def test_letters_survive_the_way_into_another_store(shop, clock, backend, request, tmp_path):
    for tool in (shop.pay, shop.ship, shop.mail):
        shop.ask(tool, f"of {tool.__name__}")
        clock.advance(10)
    before = shop.letters.list()
    assert shop.letters.export(tmp_path / "letters.jsonl") == 3

    store = OPENERS[backend](request, clock)
    other = Shop(Guard(store, cache=0))
    assert other.letters.load(tmp_path / "letters.jsonl") == Imported(3, 0, ())
    after = other.letters.list()

    assert sorted(map(shown, after), key=str) == sorted(map(shown, before), key=str)
    assert [a.at for letter in after for a in letter.attempts] == [
        a.at for letter in before for a in letter.attempts
    ]
    assert other.letters.load(tmp_path / "letters.jsonl") == Imported(0, 3, ())
    assert other.letters.list() == after

    other.away = False
    done = other.letters.redrive_all(dry_run=False, per_s=None, **BY)
    assert sorted(each.what for each in done) == ["done", "done", "in_doubt"]
    with other.guard.step("chat", "of pay"):
        # the key is the same: a caller's retry is replayed
        assert other.pay("of pay") in ({"receipt": 1}, {"receipt": 2})
    assert sorted(other.effects) == [("pay", "of pay"), ("ship", "of ship")]
    assert other.letters.load(tmp_path / "letters.jsonl") == Imported(0, 3, ())
    store.close()


def test_a_file_is_complete_and_its_owners_alone(shop, tmp_path):
    shop.ask(shop.pay, "inv_1")
    # somebody was killed, or waits for us to write here
    (tmp_path / "letters.jsonl.part").touch(0o644)
    shop.letters.export(tmp_path / "letters.jsonl")

    assert stat.S_IMODE((tmp_path / "letters.jsonl").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["letters.jsonl"]


def test_a_line_is_exact(guard):
    @guard.tool(kind="write", retry=QUICK)
    def pay(amount: int, memo: bytes):
        raise NotSent("no connection")

    with pytest.raises(Exception, match="did not run"):
        guard.call(pay, {"amount": 2**80 + 1, "memo": b"\x00\xff"}, key="a")
    line = json.loads(exported(guard.dead_letters))

    assert (line["format"], line["version"]) == ("effectonce dead letter", 1)
    record = guard.store.apply(ops.Browse(State.CLAIMED))[0]
    assert base64.b64decode(line["letter"]["arguments"]) == record.request.arguments
    other = Guard(MemoryStore(), cache=0)
    other.dead_letters.load(io.BytesIO(exported(guard.dead_letters)))
    (letter,) = other.dead_letters.list()
    assert letter.arguments == {"amount": 2**80 + 1, "memo": b"\x00\xff"}


def test_an_export_is_filtered_and_leaves_outcomes_at_home(shop):
    shop.ask(shop.pay, "inv_1")
    shop.ask(shop.mail, "inv_2")
    shop.ask(shop.refuse, "inv_3")

    assert len(exported(shop.letters, tool="pay").splitlines()) == 1
    assert len(exported(shop.letters, failed=True).splitlines()) == 2


def test_how_long_it_may_be_sent_again_is_counted_from_the_first_send(shop, clock):
    """A key that the downstream has forgotten must not be sent because its record has moved."""
    shop.ask(shop.ship, "inv_1")
    lines = exported(shop.letters)
    window_s = shop.letters.list()[0].record.request.terms.resend_s
    clock.advance(window_s - 10)
    other = Shop(Guard(MemoryStore(clock=clock), cache=0))
    other.letters.load(io.BytesIO(lines))
    assert other.letters.list()[0].record.request.terms.resend_s == pytest.approx(10)

    clock.advance(11)
    other.away = False
    (done,) = other.letters.redrive_all(dry_run=False, per_s=None, **BY)
    assert (done.what, other.effects) == ("in_doubt", [])


def test_what_can_always_be_sent_again_still_can(clock):
    def letters(store):
        guard = Guard(store, cache=0)

        @guard.tool(kind="idempotent_write", retry=QUICK)
        def put():
            raise TimeoutError

        return guard, put

    guard, put = letters(MemoryStore(clock=clock))
    with pytest.raises(Exception, match="may have run"):
        guard.call(put, {}, key="a")
    other, _ = letters(MemoryStore(clock=clock))
    other.dead_letters.load(io.BytesIO(exported(guard.dead_letters)))

    assert (
        other.dead_letters.list()[0].record.request.terms
        == guard.dead_letters.list()[0].record.request.terms
    )


def test_a_transaction_is_carried_as_never_started(tmp_path, clock):
    guard = Guard(SqliteStore(tmp_path / "effects.db", clock=clock), cache=0)

    @guard.tool(kind="write", downstream="transaction", retry=QUICK)
    def book():
        current_effect().connection.execute("SELECT 1")
        raise TimeoutError

    with pytest.raises(Exception, match="did not run"):
        guard.call(book, {}, key="a")
    other = Guard(MemoryStore(clock=clock))
    assert other.dead_letters.load(io.BytesIO(exported(guard.dead_letters))).imported == 1

    assert [letter.effect_state for letter in other.dead_letters.list()] == ["never_started"]
    guard.close()


def test_a_sealed_letter_is_opened_for_the_file_and_sealed_again(clock):
    ring, secret = Keyring({"2026-11": b"n" * 32}), b"s" * 32
    shop = Shop(Guard(MemoryStore(clock=clock), cache=0, secret=secret, keyring=ring))
    shop.ask(shop.pay, "inv_1")
    store = MemoryStore(clock=clock)
    other = Shop(Guard(store, cache=0, secret=secret, keyring=ring))
    assert other.letters.load(io.BytesIO(exported(shop.letters))) == Imported(1, 0, ())

    assert other.letters.list()[0].attempts == shop.letters.list()[0].attempts
    (bare,) = store.apply(ops.Browse(State.CLAIMED))
    assert bare.request.arguments.startswith(b"v1 sealed ")
    assert all(entry.outcome.startswith(b"v1 sealed ") for entry in bare.evidence)
    other.away = False
    assert other.letters.redrive(bare.request.key, **BY).what == "done"


@pytest.mark.parametrize(
    "keyring", [None, Keyring({"2027-01": b"o" * 32})], ids=["no keyring", "another key"]
)
def test_a_letter_that_does_not_open_is_not_carried_as_if_it_had(clock, tmp_path, keyring):
    store, secret = MemoryStore(clock=clock), b"s" * 32
    with_key = Shop(Guard(store, cache=0, secret=secret, keyring=Keyring({"2026-11": b"n" * 32})))
    key = with_key.ask(with_key.pay, "inv_1")
    without = Guard(store, cache=0, secret=secret, keyring=keyring).dead_letters

    with pytest.raises(ContractViolation, match=f"eff_{key[-12:]} cannot be carried"):
        without.export(tmp_path / "letters.jsonl")
    assert list(tmp_path.iterdir()) == [], "nor is half of it left behind"

    (closed,) = without.list()
    line = write_line(with_key.letters.show(key).record, closed.reference)
    content = json.loads(line)["letter"] | {
        "arguments": base64.b64encode(closed.record.request.arguments).decode()
    }
    forged = signed(msgspec.json.encode(content))
    other = Guard(MemoryStore(clock=clock), secret=secret)
    assert other.dead_letters.load(io.BytesIO(forged)).problems == (
        LineProblem(
            1, "some of it did not open where it was exported: export it again with all keys"
        ),
    )
    assert other.counts() == {}


def test_redacted_arguments_are_carried_as_redacted(store):
    guard = Guard(store, cache=0, secret=b"s" * 32)

    @guard.tool(kind="write", retry=QUICK, redact=["card"])
    def pay(card: str):
        raise NotSent("no connection")

    with pytest.raises(Exception, match="no connection"):
        guard.call(pay, {"card": "4111"}, key="a")
    lines = exported(guard.dead_letters)
    other = Guard(MemoryStore())
    other.dead_letters.load(io.BytesIO(lines))

    assert b"4111" not in base64.b64decode(json.loads(lines)["letter"]["arguments"])
    assert other.dead_letters.list()[0].arguments == {"card": "[redacted]"}


# ---------------------------------------------------------------- bad lines


def test_a_run_of_a_workflow_stays_where_its_steps_are(guard):
    effects, stop = [], [KeyError("a bug")]

    def define(guard):
        @guard.workflow
        def order(run, n: int) -> str:
            run.step("pay", effects.append, n)
            if stop:
                raise stop[0]
            return "done"

        return order

    with pytest.raises(KeyError):
        define(guard)(1)
    (letter,) = guard.dead_letters.list()
    other = Guard(MemoryStore(), cache=0)
    define(other)

    assert exported(guard.dead_letters) == b""
    # as an older release wrote it
    came_to = other.dead_letters.load(io.BytesIO(write_line(letter.record, letter.reference)))
    stop.clear()
    other.dead_letters.redrive_all(dry_run=False, per_s=None, **BY)
    guard.dead_letters.redrive_all(dry_run=False, per_s=None, **BY)

    assert (came_to.imported, [problem.line for problem in came_to.problems]) == (0, [1])
    assert "a run of a workflow" in came_to.problems[0].why
    assert effects == [1]


def lines_of(count=3):
    clock = FakeClock()
    shop = Shop(Guard(MemoryStore(clock=clock), cache=0))
    for n in range(count):
        shop.ask((shop.pay, shop.ship, shop.mail)[n % 3], f"inv_{n}")
        clock.advance(1)
    return exported(shop.letters).splitlines(keepends=True)


def signed(letter):
    """A line with this letter, and a digest that fits."""
    head = {
        "format": "effectonce dead letter",
        "version": 1,
        "digest": hashlib.sha256(letter).hexdigest(),
    }
    return json.dumps(head)[:-1].encode() + b', "letter": ' + letter + b"}\n"


def changed(line, **changes):
    """A line whose letter says something else."""
    return signed(msgspec.json.encode(json.loads(line)["letter"] | changes))


def test_every_bad_line_is_told_with_its_number_and_the_others_are_taken():
    one, two, three = lines_of()
    file = b"".join(
        [
            one,
            two[: len(two) // 2] + b"\n",
            b"\n",
            b"not json at all\n",
            b'{"hello": 1}\n',
            two.replace(b'"version":1', b'"version":9'),
            two.replace(b"inv_1", b"inv_7"),
            b"\xff\xfe\n",
            changed(two, terms={"tool": "pay"}),
            changed(two, state="completed"),
            changed(two, sends="many"),
            b"[]\n",
            b'{"x": ' + b"[" * 100_000 + b"\n",
            two,
            three.rstrip(b"\n"),
        ]
    )

    guard = Guard(MemoryStore())
    came_to = guard.dead_letters.load(io.BytesIO(file))

    assert (came_to.imported, came_to.known) == (3, 0)
    told = {problem.line: problem.why for problem in came_to.problems}
    assert list(told) == [2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert all("torn, or not JSON" in told[line] for line in (2, 4, 8, 13))
    assert all("not a dead letter" in told[line] for line in (5, 9, 11, 12))
    assert "version 9; this release reads" in told[6]
    assert "changed after it was written" in told[7]
    assert "that is an outcome" in told[10]
    assert len(guard.dead_letters.list()) == 3


def test_a_line_in_a_broken_encoding_is_told_even_if_its_digest_fits():
    line = signed(b'{"reference": "\xff"}')

    (problem,) = Guard(MemoryStore()).dead_letters.load(io.BytesIO(line)).problems

    assert "not a dead letter" in problem.why


@settings(deadline=None)
@given(at=st.integers(0, 2000), bits=st.integers(1, 255), cut=st.booleans())
def test_whatever_happens_to_a_line_nothing_else_is_imported_and_nothing_is_raised(at, bits, cut):
    (line,) = lines_of(1)
    at %= len(line) - 1
    broken = line[:at] + b"\n" if cut else line[:at] + bytes([line[at] ^ bits]) + line[at + 1 :]
    guard = Guard(MemoryStore())

    came_to = guard.dead_letters.load(io.BytesIO(broken + line))

    whole = Guard(MemoryStore())
    whole.dead_letters.load(io.BytesIO(line))
    assert [letter.key for letter in guard.dead_letters.list()] == [
        letter.key for letter in whole.dead_letters.list()
    ]
    assert [letter.attempts for letter in guard.dead_letters.list()] == [
        letter.attempts for letter in whole.dead_letters.list()
    ]
    assert came_to.imported == 1


def test_a_conflict_with_an_existing_record_is_told_and_changes_nothing():
    one, two, three = lines_of()
    clock = FakeClock()
    shop = Shop(Guard(MemoryStore(clock=clock), cache=0))
    taken = json.loads(one)["letter"]["key"]
    shop.ask(shop.mail, "mine")
    terms = shop.letters.list()[0].record.request.terms
    shop.guard.store.apply(
        ops.Claim(ops.Request(taken, "another", terms, "main"), "t", 30.0, dispatch=True)
    )
    before = shop.guard.find(taken)

    came_to = shop.letters.load(io.BytesIO(one + two + three))

    why = "its key is taken by another request in this store; nothing was changed"
    assert came_to == Imported(2, 0, (LineProblem(1, why),))
    assert shop.guard.find(taken) == before


def test_a_letter_whose_step_is_taken_is_told(clock):
    shop = Shop(Guard(MemoryStore(clock=clock), cache=0))
    with shop.guard.step("chat", "the step"), pytest.raises(Exception, match="did not run"):
        shop.pay("inv_1")
    other = Shop(Guard(MemoryStore(clock=clock), cache=0))
    with other.guard.step("chat", "the step"), pytest.raises(Exception, match="in doubt"):
        other.mail("inv_1")

    (problem,) = other.letters.load(io.BytesIO(exported(shop.letters))).problems
    assert problem.why == "mail of the same step was sent and has no outcome; nothing was changed"


def test_a_letter_that_somebody_makes_meanwhile_is_told(clock):
    (line,) = lines_of(1)
    store = MemoryStore(clock=clock)
    guard, apply = Guard(store, cache=0), store.apply

    def first(op):
        if isinstance(op, ops.Claim) and op.token.startswith("import"):
            apply(ops.Claim(op.request, "faster", 30.0, dispatch=True))
            apply(ops.Complete(op.key, "faster", 1, b"v1 ok 1"))
        return apply(op)

    store.apply = first
    (problem,) = guard.dead_letters.load(io.BytesIO(line)).problems
    assert problem.why == "another process has made it meanwhile; nothing was changed"


class Killed(BaseException):
    pass


@pytest.mark.parametrize("nth", range(12))
def test_an_import_that_was_killed_is_finished_by_the_next(nth, clock):
    lines = b"".join(lines_of())
    store = MemoryStore(clock=clock)
    guard, apply, writes = Guard(store, cache=0), store.apply, []

    def dies(op):
        if isinstance(op, ops.Claim | ops.Doubt | ops.Attest):
            writes.append(op)
            if len(writes) == nth + 1:
                raise Killed
        return apply(op)

    store.apply = dies
    with pytest.raises(Killed):
        guard.dead_letters.load(io.BytesIO(lines))
        raise Killed
    store.apply = apply
    guard.dead_letters.load(io.BytesIO(lines))

    whole = Guard(MemoryStore(clock=clock), cache=0)
    whole.dead_letters.load(io.BytesIO(lines))
    assert [shown(letter) for letter in _sorted(guard)] == [
        shown(letter) for letter in _sorted(whole)
    ]
    assert guard.dead_letters.load(io.BytesIO(lines)) == Imported(0, 3, ())


def _sorted(guard):
    clock = guard.store._clock
    clock.advance(10_000)
    letters = sorted(guard.dead_letters.list(), key=lambda letter: letter.key)
    clock.advance(-10_000)
    return letters


def test_a_letter_that_has_moved_on_since_it_was_imported_is_left_alone(clock):
    lines = b"".join(lines_of())
    shop = Shop(Guard(MemoryStore(clock=clock), cache=0))
    shop.letters.load(io.BytesIO(lines))
    for letter in shop.letters.list(state="never_started"):
        shop.letters.discard(letter.key, by="ada", reason="not wanted")
    before = [shop.guard.find(json.loads(line)["letter"]["key"]) for line in lines.splitlines()]

    assert shop.letters.load(io.BytesIO(lines)) == Imported(0, 3, ())
    assert [
        shop.guard.find(json.loads(line)["letter"]["key"]) for line in lines.splitlines()
    ] == before
