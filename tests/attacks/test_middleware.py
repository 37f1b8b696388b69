"""What a client does to an app behind the middleware: bodies that are costly to compare."""

import sys

from tests.http.test_fingerprint import multipart


def calls_of(function, *given):
    """How many functions, of Python and of C, it calls."""
    count = 0

    def counted(frame, event, called):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        function(*given)
    finally:
        sys.setprofile(None)
    return count


def test_a_form_that_is_made_of_boundaries_is_compared_in_few_steps():
    forms = [b"--x" + b"\r\n--x" * count for count in (20_000, 400_000)]
    multipart(b"--x")  # what is remembered about its type costs some calls once

    calls = [calls_of(multipart, form) for form in forms]

    assert calls[0] == calls[1] < 100_000


def test_such_a_form_is_still_told_from_another():
    form = b"--x" + b"\r\n--x" * 20_000

    assert multipart(form) == multipart(form)
    assert multipart(form) != multipart(form + b"\r\n--x")
