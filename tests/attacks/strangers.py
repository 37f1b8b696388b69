"""Files of another user of this machine."""

import os

STRANGER = 54_321


def given_to_a_stranger(path, monkeypatch):
    """Let a file, folder or link belong to another user. Without the right to give it away, we
    become another user.
    """
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    return path
