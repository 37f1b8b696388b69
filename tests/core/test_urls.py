"""No message shows a password, whatever is wrong with the URL that it stands in."""

import traceback

import pytest

from effectonce import ContractViolation, Guard
from effectonce.stores import open_store

SECRETS = ("hunter", "ter2", "hun")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://app:hunter2@db/effects",  # as other libraries write it
        "mysql://app:hunter2@db/effects",
        "postgresql://app:hun%zzter2@db/effects",
        "postgresql://app:hun/ter2@db/effects",
        "postgresql://app:12/ter2@db/effects",
        "postgresql://app:hun@ter2@db/effects",
        "postgresql://app@db/effects?password=hunter2&unknown=1",
        "redis://app:hun/ter2@cache:6379/0",
        "redis://app:12/ter2@cache:6379/0",
        "redis://app:hun?ter2@cache:6379/0",
        "redis://app:hun#ter2@cache:6379/0",
        "redis://cache:6379/0?password=hunter2",
    ],
)
@pytest.mark.parametrize("open_", [open_store, Guard])
def test_a_url_that_cannot_be_read_does_not_tell_its_password(url, open_):
    with pytest.raises(ContractViolation, match="is not the URL of") as caught:
        open_(url)

    told = "".join(traceback.format_exception_only(caught.value)) + str(caught.value.__cause__)
    assert not [secret for secret in SECRETS if secret in told], told


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:hun#ter2@db/effects",
        "postgresql://app:hun?ter2@db/effects",
        "postgresql://app:hunter2@h1:5432,h2:5433/effects",
        "postgresql://app:hun%2Fter2@db:5432/effects%40home",
        "postgresql:///effects?host=/run/postgresql&user=app@tenant&password=hunter2",
        "redis://app:hun@ter2@cache:6379/0",
    ],
)
def test_a_url_that_can_be_read_is_accepted_whatever_is_in_its_password(url):
    store = Guard(url).store
    assert not [secret for secret in SECRETS if secret in getattr(store, "where", "")]


def test_what_is_wrong_is_still_told():
    with pytest.raises(ContractViolation, match="a cluster has only database 0"):
        open_store("redis+cluster://app:hunter2@cache:6379/1")
    with pytest.raises(ContractViolation, match='invalid URI query parameter: "unknown"'):
        open_store("postgresql://app:hunter2@db/effects?unknown=1")
