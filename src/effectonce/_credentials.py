"""Which headers say who asks, by their names: of those that are in use, and of those that are
made up alike.
"""

from __future__ import annotations

import re

SAYS_WHO = re.compile(
    rb"account|assertion|auth|cert|client-?id|cookie|credential|customer|email|identity|jwt|key|member|oidc|org|owner|password|principal"
    rb"|project|role|secret|session|sign|ssl-client|subject|team|tenant|token|user|workspace"
)
