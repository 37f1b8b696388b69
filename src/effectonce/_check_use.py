"""A declaration is checked, not believed: does an attempt use the help that its tool declares?

`downstream="key"` helps only if the key is sent, `"transaction"` only if the work is done on the lent connection. Both have to be read from
`current_effect()` first, so it is noticed which attempts did. An attempt that did not is judged as `downstream="none"`: if it ends without
an answer, it is in doubt, and is not sent again.
"""

from __future__ import annotations

import logging

from msgspec import structs

from effectonce._core.ops import Answer, Ok, Raised
from effectonce._core.terms import GUARANTEES, Capability, Resend, Terms
from effectonce.effect import Effect
from effectonce.policy import Contract

LOG = logging.getLogger("effectonce")
_ADVICE = {
    Capability.KEY: "never read its key, so the downstream cannot recognise a second request. Send current_effect().downstream_key "
    "with the request, or send it through a client of effectonce.http.clients.protect(); otherwise declare downstream='none'. "
    "Until it reads its key, a call without an answer is in doubt and is not sent again",
    Capability.TRANSACTION: "never used its connection, so what it did is not in the transaction of its record. Write through "
    "current_effect().connection, or declare what the downstream really offers",
    Capability.PROBE: "has no probe, so nothing can be asked and a call without an answer stays in doubt. Register one with "
    "@{tool}.probe, or declare downstream='none'",
}
_USED = {Capability.KEY: "key", Capability.TRANSACTION: "connection"}


class DeclarationCheck:
    """What was seen of one tool's declaration in this process."""

    def __init__(self, contract: Contract, *, has_probe: bool) -> None:
        self._tool, self._capability = contract.name, contract.downstream.capability
        relies = GUARANTEES[contract.kind, self._capability].resend is Resend.WINDOW
        self._checks_key = self._capability is Capability.KEY and relies
        self._needs = _USED.get(self._capability, "") if relies or self._capability is Capability.TRANSACTION else ""
        self._missing_probe = self._capability is Capability.PROBE and not has_probe
        self._seen = self._warned = False

    def __call__(self, effect: Effect, answer: Answer) -> Answer:
        """The answer of an attempt; an error of one that did not use what its tool declares says so."""
        if self._missing_probe:
            self._warn()
        if not self._needs:
            return answer
        if self._needs in effect.used:
            self._seen = True
            return answer
        if isinstance(answer, Ok):
            if not self._seen:
                self._warn()
            return answer
        # Many transaction tools read elsewhere before they first use their connection: one that was seen to use it is believed.
        believed = self._capability is Capability.TRANSACTION and self._seen
        return Raised(answer.error, unaided=True) if isinstance(answer, Raised) and not believed else answer

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            advice = _ADVICE[self._capability].replace("{tool}", self._tool)
            LOG.warning("%s declares downstream=%r and %s.", self._tool, str(self._capability), advice)

    def terms(self, declared: Terms) -> Terms:
        """What new calls may rely on: not on a key that calls before them did without."""
        if self._checks_key and self._warned and not self._seen:
            return structs.replace(declared, downstream=Capability.NONE, resend_s=0.0)
        return declared
