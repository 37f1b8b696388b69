"""One part of a statement or of a script taken out, or put in its place."""

from effectonce.stores.postgres import statements as sql
from effectonce.stores.redis import scripts


def sabotage_sqlite(monkeypatch, home, name, part, instead):
    monkeypatch.setattr(home, name, _changed(getattr(home, name), part, instead))


def sabotage_postgres(monkeypatch, home, name, part, instead):
    """*home* is the module that holds the statement. {now} stands for the clock of the server."""
    right = getattr(home, name)
    part, instead = (text.replace("{now}", sql.NOW) for text in (part, instead))
    wrong = sql.statement(_changed(right.sql.decode(), part, instead), *right.types)
    monkeypatch.setattr(home, name, wrong)


def sabotage_redis(monkeypatch, name, part, instead):
    right = getattr(scripts, name)
    source = _changed(right.source.decode(), part, instead).encode()
    monkeypatch.setattr(right, "source", source)
    monkeypatch.setattr(
        right, "sha", scripts.sha1(source, usedforsecurity=False).hexdigest().encode()
    )


def _changed(text, part, instead):
    assert part in text, "the statement has changed: sabotage it anew"
    return text.replace(part, instead)
