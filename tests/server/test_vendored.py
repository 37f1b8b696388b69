"""What others wrote and we ship is what they published."""

import hashlib
import tomllib
from pathlib import Path

import effectonce.dashboard

VENDOR = Path(effectonce.dashboard.__file__).parent / "static" / "vendor"


def test_every_vendored_file_is_listed_with_its_hash_and_licence():
    listed = tomllib.loads((VENDOR / "VERSIONS.toml").read_text())["file"]

    for file in listed:
        assert hashlib.sha256((VENDOR / file["path"]).read_bytes()).hexdigest() == file["sha256"]
        assert (VENDOR / file["licence_file"]).read_text()
        assert file["version"] in file["path"]
    known = {
        "VERSIONS.toml",
        *(file["path"] for file in listed),
        *(file["licence_file"] for file in listed),
    }
    assert {path.name for path in VENDOR.iterdir()} == known
