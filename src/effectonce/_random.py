"""Random numbers of our own.

A program that seeds Python's shared generator, as tests and models do, would make all its
workers wait for the same delays, and choose the same numbers. A forked child begins anew.
"""

from __future__ import annotations

import os
import random

_OWN = random.Random()  # noqa: S311  # for delays, not for secrets
os.register_at_fork(after_in_child=_OWN.seed)
rng = _OWN.random
random_bits = _OWN.getrandbits
