"""Jira: give the issue a property, and look at the properties of the issues that were made since.
The search that lists them may not show the newest ones.

    "properties": [jira.issue_property()]                                # in the tool
    file.probe(jira.issue(client, lambda project, summary: project))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from effectonce.providers.probes._asking import (
    MARK,
    Probe,
    asking,
    bounded,
    get_json,
    mark,
    since_s,
)

__all__ = ["issue", "issue_property"]
PATH = "/rest/api/3/search/jql"


def issue_property() -> dict[str, Any]:
    """One of the `properties` of a new issue."""
    return {"key": MARK, "value": {MARK: mark()}}


def issue(
    client: Any,
    project: Callable[..., str],
    *,
    result: Callable[[Any], Any] = lambda found: found["key"],
    proof_after_s: float | None = None,
) -> Probe:
    """Found by its property. *client* is an `httpx.Client` or the like, with its base URL;
    *project* is called like the tool, and returns the key of the project.
    """

    def search(*args: Any, **kwargs: Any) -> Iterator[Any]:
        wanted = issue_property()["value"]
        for found in bounded(_issues(client, project(*args, **kwargs))):
            if (found.get("properties") or {}).get(MARK) == wanted:
                yield found

    return asking("jira", search, result, proof_after_s)


def _issues(client: Any, project: str) -> Iterator[Any]:
    # relative: an absolute time would be in the zone of the user
    minutes = int((time.time() - since_s()) // 60) + 1
    name = project.replace("\\", "\\\\").replace('"', '\\"')
    asked = {"jql": f'project = "{name}" AND created >= -{minutes}m ORDER BY created ASC'}
    asked["maxResults"] = "100"
    token: dict[str, str] = {}
    while True:
        answer = get_json(client, PATH, **asked, fields="key", properties=MARK, **token)
        yield from answer["issues"]
        if not answer.get("nextPageToken"):
            return
        token = {"nextPageToken": answer["nextPageToken"]}
