"""Simulated vendors: a rate limit, faults by the mix, and answers in the shape that the real
ones have.

A 429 is never drawn: it comes about when more is asked than the limit allows. What an answer
means is not decided here: the classifier reads it.
"""

from __future__ import annotations

from functools import cache
from json import JSONDecodeError
from math import ceil
from random import Random
from typing import Any

from effectonce._core.classification.classify import classify
from effectonce._core.classification.verdicts import Verdict
from effectonce.simulate._mix import Mix

# what the same prompt meets again
STAYS = ("parse", "context_length", "schema", "content_policy", "auth")


class VendorBucket:
    """A limit that refills all the time."""

    def __init__(self, rate: float, window_s: float) -> None:
        self.rate, self.most = rate, max(1.0, rate * window_s)
        self.left, self.seen_s = self.most, 0.0

    def refuses(self, now: float) -> float | None:
        """None: go on. Otherwise, after how many seconds there is room."""
        self.left = min(self.most, self.left + (now - self.seen_s) * self.rate)
        self.seen_s = now
        if self.left < 1:
            return (1 - self.left) / self.rate
        self.left -= 1
        return None


class Window:
    """A limit that is counted anew in every window."""

    def __init__(self, rate: float, window_s: float) -> None:
        self.most, self.window_s = max(1.0, rate * window_s), window_s
        self.number, self.count = -1, 0

    def refuses(self, now: float) -> float | None:
        """None: go on. Otherwise, after how many seconds there is room."""
        number = int(now // self.window_s)
        if number != self.number:
            self.number, self.count = number, 0
        if self.count >= self.most:
            return (number + 1) * self.window_s - now
        self.count += 1
        return None


class Prompt:
    """What a step asks, and what is wrong with it."""

    __slots__ = ("bad_until", "defect")

    def __init__(self) -> None:
        self.defect = ""
        self.bad_until = 0.0


class Vendor:
    """One vendor on one day."""

    def __init__(self, name: str, mix: Mix, rng: Random, *, rate: float, day_s: float) -> None:
        self.name, self.mix, self.rng = name, mix, rng
        limit = VendorBucket if mix[f"{name}.refills"] else Window
        self.limit = limit(rate, mix[f"{name}.window_s"])
        self.every_s = max(1.0, day_s / mix["incidents"])
        share = mix["incident_share"]
        down = min(1.0, (1 - mix[f"{name}.uptime"]) / share) if share else 0.0
        self.incident_from = rng.random() * (1 - down) * self.every_s
        self.incident_until = self.incident_from + down * self.every_s
        self.faults = tuple((kind, mix[kind]) for kind in ("no_answer", *STAYS))

    def answer(self, now: float, prompt: Prompt) -> str:
        """What is wrong with the answer; "" is a good one. Asked after the limit was."""
        if now < prompt.bad_until:
            return "server_error"
        if prompt.defect:
            if prompt.defect != "parse" or self.rng.random() < self.mix["parse_again"]:
                return prompt.defect
            return ""
        incident = self.incident_from <= now % self.every_s < self.incident_until
        if incident and self.rng.random() < self.mix["incident_share"]:
            return "server_error"
        drawn = self.rng.random() - self.mix["server_error"]
        if drawn < 0:
            spell_s = self.mix["spell_s"]
            prompt.bad_until = now + self.rng.expovariate(1 / spell_s) if spell_s else now
            return "server_error"
        for kind, share in self.faults:
            drawn -= share
            if drawn < 0:
                prompt.defect = kind if kind in STAYS else ""
                return kind
        return ""

    def verdict(self, kind: str, room_s: float | None) -> Verdict:
        """The classifier's verdict. If the vendor says when there is room, it is whole seconds."""
        tells = room_s is not None and self.mix[f"{self.name}.tells"]
        return verdict_of(self.name, kind, ceil(room_s) if tells and room_s is not None else None)


@cache
def verdict_of(vendor: str, kind: str, retry_after_s: int | None = None) -> Verdict:
    """The same answer always means the same."""
    return classify(shape(vendor, kind, retry_after_s))


def shape(vendor: str, kind: str, retry_after_s: int | None = None) -> Any:
    """An answer, or an exception, as the vendor's API gives it."""
    if kind == "no_answer":
        return TimeoutError("the read operation timed out")
    if kind == "parse":
        return JSONDecodeError("Expecting ',' delimiter", '{"city": "Berlin" "days": 3}', 18)
    return _SHAPES[vendor](kind, retry_after_s)


def _delay(retry_after_s: int | None) -> dict[str, str]:
    return {} if retry_after_s is None else {"retry-after": str(retry_after_s)}


def _anthropic(kind: str, retry_after_s: int | None) -> Any:
    if kind == "content_policy":
        return {"type": "message", "stop_reason": "refusal", "content": []}
    status, name, message = {
        "rate_limit": (
            429,
            "rate_limit_error",
            "This request would exceed the rate limit of your organization",
        ),
        "server_error": (529, "overloaded_error", "Overloaded"),
        "context_length": (
            400,
            "invalid_request_error",
            "prompt is too long: 208310 tokens > 200000 maximum",
        ),
        "schema": (400, "invalid_request_error", "messages.1: tool_use ids must be unique"),
        "auth": (401, "authentication_error", "invalid x-api-key"),
    }[kind]
    headers = {"anthropic-organization-id": "org"} | _delay(retry_after_s)
    body = {"type": "error", "error": {"type": name, "message": message}}
    return {"status": status, "headers": headers, "body": body}


def _openai(kind: str, retry_after_s: int | None) -> Any:
    status, name, message = {
        "rate_limit": (429, "rate_limit_exceeded", "Rate limit reached for requests"),
        "server_error": (
            500,
            "server_error",
            "The server had an error while processing your request",
        ),
        "context_length": (
            400,
            "context_length_exceeded",
            "Your input exceeds the context window of this model",
        ),
        "schema": (400, "invalid_request_error", "Invalid schema for function 'refund'"),
        "content_policy": (
            400,
            "content_policy_violation",
            "Your request was rejected by our safety system",
        ),
        "auth": (401, "invalid_api_key", "Incorrect API key provided"),
    }[kind]
    headers = {"openai-version": "2020-10-01"} | _delay(retry_after_s)
    body = {"error": {"code": name, "message": message}}
    return {"status": status, "headers": headers, "body": body}


def _google(kind: str, retry_after_s: int | None) -> Any:
    if kind == "content_policy":
        return {"promptFeedback": {"blockReason": "SAFETY"}, "candidates": []}
    status, name, message = {
        "rate_limit": (
            429,
            "RESOURCE_EXHAUSTED",
            "Resource has been exhausted (e.g. check quota).",
        ),
        "server_error": (503, "UNAVAILABLE", "The model is overloaded"),
        "context_length": (
            400,
            "INVALID_ARGUMENT",
            "The input token count exceeds the number of tokens allowed",
        ),
        "schema": (400, "INVALID_ARGUMENT", "Invalid JSON payload received"),
        "auth": (403, "PERMISSION_DENIED", "The caller does not have permission"),
    }[kind]
    delay = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{retry_after_s}s"}
    details = [] if retry_after_s is None else [delay]
    error = {"code": status, "status": name, "message": message, "details": details}
    return {"status": status, "headers": {"x-goog-request-id": "1"}, "body": {"error": error}}


def _bedrock(kind: str, retry_after_s: int | None) -> Any:
    if kind == "content_policy":
        return {"stopReason": "guardrail_intervened"}
    status, name, message = {
        "rate_limit": (
            429,
            "ThrottlingException",
            "Too many requests, please wait before trying again.",
        ),
        "server_error": (
            503,
            "ServiceUnavailableException",
            "Bedrock is unable to process your request.",
        ),
        "context_length": (400, "ValidationException", "Input is too long for requested model."),
        "schema": (400, "ValidationException", "Malformed input request"),
        "auth": (403, "AccessDeniedException", "You don't have access to the model"),
    }[kind]
    headers = {"x-amzn-errortype": name} | _delay(retry_after_s)
    return {"status": status, "headers": headers, "body": {"message": message}}


_SHAPES = {"anthropic": _anthropic, "openai": _openai, "google": _google, "bedrock": _bedrock}
