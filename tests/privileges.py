"""Make file permissions count where tests run as root, who may otherwise read and write
everything.
"""

import contextlib
import ctypes
import os

_MAY_PASS = 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
_VERSION_3, _DROP_FROM_BOUNDING_SET = 0x20080522, 24


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


@contextlib.contextmanager
def file_permissions_count():
    """In this thread, and in threads that it starts."""
    if os.geteuid() != 0:
        yield
        return
    libc, header, sets = ctypes.CDLL(None, use_errno=True), _Header(_VERSION_3, 0), (_Sets * 2)()
    assert libc.capget(ctypes.byref(header), sets) == 0
    before = sets[0].effective
    sets[0].effective = before & ~_MAY_PASS
    assert libc.capset(ctypes.byref(header), sets) == 0
    try:
        yield
    finally:
        sets[0].effective = before
        assert libc.capset(ctypes.byref(header), sets) == 0


def drop_for_good():
    """For `preexec_fn`: in the program that this process becomes."""
    libc = ctypes.CDLL(None)
    for capability in (1, 2):
        libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)
