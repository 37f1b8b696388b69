"""DynamoDB: put the item only if there is none, with a mark, and read it back consistently. Such a
read shows every write that was answered before it:
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html

    Item={..., MARK: {"S": mark()}}, ConditionExpression="attribute_not_exists(pk)"   # in the tool
    store.probe(dynamodb.put(client, lambda order: {"TableName": "orders", "Key": {...}}))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from effectonce.providers.probes._asking import MARK, Probe, asking, mark
from effectonce.providers.probes.s3 import WrittenByAnother

__all__ = ["MARK", "mark", "put"]


def put(
    client: Any,
    where: Callable[..., dict[str, Any]],
    *,
    result: Callable[[Any], Any] = lambda found: found[MARK]["S"],
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its key and mark. *where* is called like the tool and returns TableName and Key."""

    def search(*args: Any, **kwargs: Any) -> Iterator[Any]:
        answer = client.get_item(**where(*args, **kwargs), ConsistentRead=True)
        if "Item" not in answer:
            return
        if answer["Item"].get(MARK) != {"S": mark()}:
            raise WrittenByAnother("the item has another mark")
        yield answer["Item"]

    return asking("DynamoDB", search, result, proof_after_s, strict=True)
