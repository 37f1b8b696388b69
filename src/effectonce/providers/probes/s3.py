"""Amazon S3: write only if there is no such object, with a mark, and read it back. A read shows
every write that was answered before it, so an object that is not there was not written:
https://docs.aws.amazon.com/AmazonS3/latest/userguide/Welcome.html#ConsistencyModel

    s3.put_object(..., IfNoneMatch="*", Metadata={MARK: mark()})         # in the tool
    store.probe(s3.written(client, lambda name, data: {"Bucket": "reports", "Key": name}))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from effectonce.providers.probes._asking import MARK, Probe, asking, mark

__all__ = ["MARK", "mark", "written"]
ABSENT = frozenset({"404", "NoSuchKey", "NotFound"})


class WrittenByAnother(Exception):
    """What is there now is not this effect's. It may have been before."""


def written(
    client: Any,
    where: Callable[..., dict[str, str]],
    *,
    result: Callable[[Any], Any] = lambda found: found["ETag"],
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its name and mark. *where* is called like the tool, and returns Bucket and Key."""

    def search(*args: Any, **kwargs: Any) -> Iterator[Any]:
        try:
            found = client.head_object(**where(*args, **kwargs))
        except client.exceptions.ClientError as error:
            if error.response["Error"]["Code"] not in ABSENT:
                raise
            return
        if found["Metadata"].get(MARK) != mark():
            raise WrittenByAnother("the object has another mark")
        yield found

    return asking("Amazon S3", search, result, proof_after_s, strict=True)
