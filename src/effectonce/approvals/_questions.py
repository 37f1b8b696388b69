"""A call that needs an approval, as a question of a framework, and an answer as a decision.

A framework that can pause asks a person in its own way: an interrupt, a deferred call, an
elicitation. What is asked, and what an answer does, is the same in all of them, and is here.

 1. A question is about one wish as it is now: these arguments, and so many approvals before. An
    answer to it is of no use for other arguments, nor after its approval has expired.
 2. An answer is `{"approved": True, "by": "ada", "reason": "the parcel came back"}`. Who answers
    is what the application says (*approver*); without that, the answer has to say it.
 3. The decision is the store's. An answer that comes too late, because another one was first,
    changes nothing: the call is made again and ends as that one decided.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import Struct

from effectonce._core.ops import Find
from effectonce._core.record import APPROVED, Record
from effectonce.approvals import Approvals, Wish
from effectonce.errors import ApprovalNeeded, ContractViolation
from effectonce.stores.base import Store

# who answers: a name, or how the framework's context says it
Approver: TypeAlias = str | Callable[[Any], str]
QUESTION = "question"


class Question(Struct, frozen=True):
    """What a person is asked."""

    id: str
    wish: Wish
    refused: str = ""  # why the last answer did not count

    def shown(self) -> dict[str, Any]:
        """As plain data: never the key."""
        effect, arguments = self.wish.effect, self.wish.arguments
        shown: dict[str, Any] = {
            "code": ApprovalNeeded.code,
            QUESTION: self.id,
            "reference": effect.reference,
            "tool": effect.tool,
            "arguments": None if arguments is None else _plain(arguments),
            "asked_by": self.wish.asked_by,
            "expired": self.wish.expired,
        }
        return shown | {"refused": self.refused} if self.refused else shown


class Approving:
    """Asks and decides for one integration. *where* is its name, for a decision without reason."""

    def __init__(
        self, approvals: Approvals, store: Store, approver: Approver | None, where: str
    ) -> None:
        self._approvals, self._store = approvals, store
        self._approver, self._where = approver, where

    def question(self, error: ApprovalNeeded, refused: str = "") -> Question | None:
        """What to ask now; None: it was decided in the meantime, or the wish is for the arguments
        of another call by now. Then the call is made again.
        """
        assert error.effect is not None
        key = error.effect.key
        wish = self._approvals.find(key)
        if wish is None or error.fingerprint not in ("", wish.fingerprint):
            return None
        return self._about(wish, refused)

    def asked(self, shown: Mapping[str, Any]) -> Question | None:
        """The question that was shown so, if it still waits for its answer."""
        tool = shown.get("tool")
        waiting = self._approvals.waiting(tool=tool, limit=sys.maxsize)
        questions = (self._about(wish) for wish in waiting)
        return next((each for each in questions if each.id == shown.get(QUESTION)), None)

    def _about(self, wish: Wish, refused: str = "") -> Question:
        record: Record | None = self._store.apply(Find(wish.key))
        evidence = () if record is None else record.evidence
        before = sum(each.note == APPROVED for each in evidence)
        about = f"{wish.key}\n{wish.fingerprint}\n{before}".encode()
        return Question(hashlib.sha256(about).hexdigest()[:32], wish, refused)

    def decide(self, question: Question, answer: Mapping[str, Any], context: Any) -> str:
        """Approve or reject. Returns why the answer does not count; "": it is decided."""
        approved, wish = answer.get("approved"), question.wish
        if not isinstance(approved, bool):
            return "an answer says whether it is approved: True or False"
        by = self._who(answer, context)
        if not by:
            return "an answer says who decides: by"
        reason = answer.get("reason")
        if not isinstance(reason, str) or not reason.strip():
            reason = f"answered in {self._where}"
        approvals = self._approvals
        try:
            if approved:
                approvals.approve(wish.key, by=by, reason=reason, fingerprint=wish.fingerprint)
            else:
                approvals.reject(wish.key, by=by, reason=reason, fingerprint=wish.fingerprint)
        except ContractViolation as error:
            return str(error) if approvals.find(wish.key) == wish else ""
        return ""

    def _who(self, answer: Mapping[str, Any], context: Any) -> str:
        approver = self._approver
        by = answer.get("by") if approver is None else approver
        if callable(by):
            by = by(context)
        return by if isinstance(by, str) else ""


def _plain(arguments: Mapping[str, Any]) -> Any:
    """Data that every framework can carry."""
    return msgspec.json.decode(msgspec.json.encode(arguments, enc_hook=str))
