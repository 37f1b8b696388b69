"""Private servers for the tests: each in a temporary folder, on a socket or a free port of its
own, ended by its process id.
"""
