"""Attacks, one file for each door. What they may not do is listed in SECURITY.md, with the tests
that show it.
"""
