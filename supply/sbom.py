"""Print what the wheel contains and asks for, as CycloneDX 1.6: `make sbom` writes it to
supply/effectonce.cdx.json.

It is made from pyproject.toml, the version in the code and the list of vendored files, and from
nothing else: no date, no random number. The wheel brings it in `.dist-info/sboms/` (PEP 770).
tests/test_supply_chain.py compares the file with what this prints.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "src/effectonce/dashboard/static/vendor"


def bill() -> dict[str, Any]:
    """The whole document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.search(
        r'^__version__ = "(.+)"$', (ROOT / "src/effectonce/__init__.py").read_text(), re.MULTILINE
    )
    assert version is not None
    vendored = [
        _vendored(file) for file in tomllib.loads((VENDOR / "VERSIONS.toml").read_text())["file"]
    ]
    asked_for = [_asked_for(name, uses) for name, uses in sorted(_uses(project).items())]
    product = f"pkg:pypi/effectonce@{version[1]}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": product,
                "name": project["name"],
                "version": version[1],
                "description": project["description"],
                "licenses": [{"expression": project["license"]}],
                "purl": product,
            },
        },
        "components": [*vendored, *asked_for],
        "dependencies": [
            {
                "ref": product,
                "dependsOn": [component["bom-ref"] for component in (*vendored, *asked_for)],
            }
        ],
    }


def _vendored(file: dict[str, str]) -> dict[str, Any]:
    package = f"pkg:npm/{file['name']}@{file['version']}"
    return {
        "type": "library",
        "bom-ref": package,
        "name": file["name"],
        "version": file["version"],
        "scope": "required",
        "hashes": [{"alg": "SHA-256", "content": file["sha256"]}],
        "licenses": [{"license": {"id": file["licence"]}}],
        "purl": package,
        "properties": [
            {
                "name": "effectonce:file",
                "value": f"effectonce/dashboard/static/vendor/{file['path']}",
            }
        ],
    }


def _uses(project: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """For each package, who asks for it, and how: `("base", "click>=8.3.3")`, `("server",
    "h11>=0.16")`.
    """
    asking = {"base": project["dependencies"], **project["optional-dependencies"]}
    uses: dict[str, list[tuple[str, str]]] = {}
    for part, requirements in asking.items():
        for requirement in requirements:
            name = re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]
            uses.setdefault(name, []).append((part, requirement))
    return uses


def _asked_for(name: str, uses: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}",
        "name": name,
        "scope": "required" if uses[0][0] == "base" else "optional",
        "purl": f"pkg:pypi/{name}",
        "properties": [
            {"name": f"effectonce:requirement:{part}", "value": requirement}
            for part, requirement in uses
        ],
    }


if __name__ == "__main__":
    print(json.dumps(bill(), indent=2))
