"""botocore and boto3: around the one method of an endpoint that sends a request and reads its
answer.

AWS answers in several formats, and calls most things by POST. So the answer is looked at after
botocore has read it, and an operation whose name says that it reads is no request that changes
something.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from typing import Any

import orjson

from effectonce.http.client.attempts import Answered, ClientPolicy, asked_of, exchange, nothing
from effectonce.http.client.urllib3 import watch

READING = re.compile(
    r"(Batch|Transact)?Get(?!ActivityTask|FederationToken)|List|Describe|Head|Query|Scan|Search|Select"
)


def install(client: Any, wire: ClientPolicy) -> Any:
    endpoint = client._endpoint
    if inspect.iscoroutinefunction(endpoint._do_get_response):
        raise TypeError(
            f"{type(client).__module__} is botocore in async code, which effectonce cannot protect."
        )
    endpoint._do_get_response = functools.partial(_get_response, wire, endpoint._do_get_response)
    endpoint.effectonce_wire = wire
    return client


def protected(client: Any) -> bool:
    return hasattr(client._endpoint, "effectonce_wire")


def _get_response(
    wire: ClientPolicy, get_response: Any, request: Any, operation: Any, context: Any
) -> tuple[Any, None]:
    """The answer, and no error for botocore to try again after: one is raised at once."""

    def send(left_s: float) -> Answered:
        _cut_down(request, left_s)
        answer, error = get_response(request, operation, context)
        if error is not None:
            raise error
        return _answered(request, answer)

    method = "GET" if READING.match(operation.name) else request.method.upper()
    return exchange(wire, asked_of(method, request), send), None


def _answered(request: Any, answer: Any) -> Answered:
    http, parsed = answer
    unread = request.stream_output and http.status_code < 300
    if not unread:
        _refuse_part(request, http)
    metadata = parsed["ResponseMetadata"]  # S3 may say 200 and mean 500; here it says what it means
    status, headers = metadata["HTTPStatusCode"], metadata["HTTPHeaders"]
    body = orjson.dumps({"Error": parsed.get("Error")}, default=str)
    watched = watch(http.raw) if unread else None
    return Answered(status, headers, body, answer, headers.__setitem__, nothing, watched)


def _refuse_part(request: Any, http: Any) -> None:
    """An answer that breaks off is none. To botocore it is one."""
    length, read = http.headers.get("content-length", ""), len(http.content)
    if request.method != "HEAD" and length.isdecimal() and read < int(length):
        error = sys.modules["botocore.exceptions"].IncompleteReadError
        raise error(actual_bytes=read, expected_bytes=int(length))


def _cut_down(request: Any, left_s: float) -> None:
    """Since 1.44, a request has its own time to read. The time to connect is the client's."""
    context = getattr(request, "context", None)
    if context is not None:
        limit = context.get("read_timeout") or context["client_config"].read_timeout
        read_s = left_s if limit is None else min(limit, left_s)
        request.context = context | {"read_timeout": read_s}
