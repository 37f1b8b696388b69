"""What the metadata of a build says beside pyproject.toml: where the project is, and the README
without links that lead nowhere.

The build reads one setting, the variable PROJECT_URL: `make dist PROJECT_URL=https://...`. A
link of the README to a file of the repository then leads to that file, in this version. Without
it there is no address, and such a link is its text: `effectonce docs` shows the pages.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|#|mailto:)([^)\s]+)\)")


class ReleaseMetadata(MetadataHookInterface):
    """`dynamic = ["readme", "urls"]`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add both."""
        root = Path(self.root)
        version = re.search(
            r'^__version__ = "(.+)"$',
            (root / "src/effectonce/__init__.py").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        assert version is not None
        address = os.environ.get("PROJECT_URL", "").rstrip("/")
        readme = (root / "README.md").read_text(encoding="utf-8")
        files = f"{address}/blob/v{version[1]}" if address else ""
        metadata["readme"] = {"content-type": "text/markdown", "text": described(readme, files)}
        metadata["urls"] = _urls(address, files) if address else {}


def described(readme: str, files: str) -> str:
    """The README for readers who have no repository. *files* is where its files are, or ""."""
    return LINK.sub(rf"[\1]({files}/\2)" if files else r"\1", readme)


def _urls(address: str, files: str) -> dict[str, str]:
    return {
        "Homepage": address,
        "Documentation": f"{files}/docs/index.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Source": address,
        "Issues": f"{address}/issues",
    }
