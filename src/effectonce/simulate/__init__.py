"""Experiments in virtual time: what retries do to a crowd, to a service that stumbled, and to a
day of turns.

Each module is one experiment: a pure function of its seed and size that returns a frozen result.
Delays, verdicts, budgets and breakers are the ones that a guarded call uses; only the world
around them is made up, and `docs/explanation/simulations.md` says of what.
"""
