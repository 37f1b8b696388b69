"""What we depend on and ship: lower bounds without known vulnerabilities, a lock with hashes, a
bill of materials in the wheel.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCK = (ROOT / "supply" / "requirements-dev.txt").read_text()
BILL = json.loads((ROOT / "supply" / "effectonce.cdx.json").read_text())


def requirements_of_group(name):
    for entry in PYPROJECT["dependency-groups"][name]:
        match entry:
            case {"include-group": other}:
                yield from requirements_of_group(other)
            case str():
                yield Requirement(entry)


def requirements_of_users():
    """What the base and the extras ask for, as (part, requirement)."""
    parts = {
        "base": PYPROJECT["project"]["dependencies"],
        **PYPROJECT["project"]["optional-dependencies"],
    }
    return [(part, Requirement(text)) for part, texts in parts.items() for text in texts]


def lower_bound(requirement):
    (bound,) = [Version(s.version) for s in requirement.specifier if s.operator == ">="]
    return bound


def documented():
    """The table of the page: each package with the bound it names, and the versions that fixed
    its advisories.
    """
    page = (ROOT / "docs" / "reference" / "supply-chain.md").read_text()
    rows = re.findall(r"^\| `([\w.-]+)` \| ([\d.]+) \| (.+?) \|", page, re.MULTILINE)
    assert rows
    return {
        canonicalize_name(name): (Version(bound), advisories) for name, bound, advisories in rows
    }


def locked():
    """What the lock pins: each package with its versions, one for each platform where they
    differ.
    """
    pinned = {}
    for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK, re.MULTILINE):
        pinned.setdefault(canonicalize_name(name), []).append(Version(version))
    return pinned


def test_the_page_names_every_package_that_we_ask_for_with_its_bound():
    asked_for = {}
    for _, requirement in requirements_of_users():
        asked_for.setdefault(canonicalize_name(requirement.name), set()).add(
            lower_bound(requirement)
        )

    assert {name: {bound} for name, (bound, _) in documented().items()} == asked_for


def test_no_bound_lets_a_version_in_that_an_advisory_names():
    for name, (bound, advisories) in documented().items():
        fixed = re.findall(r"(?:CVE-\d{4}-\d+|GHSA(?:-\w{4}){3}) \(([\d.]+)\)", advisories)

        assert fixed or advisories == "none known", name
        assert all(bound >= Version(version) for version in fixed), name


def test_the_tests_ask_for_no_older_versions_than_users_get():
    table = documented()
    asked_for = [r for r in requirements_of_group("dev") if canonicalize_name(r.name) in table]

    assert [str(r) for r in asked_for if lower_bound(r) < table[canonicalize_name(r.name)][0]] == []


def test_the_lock_pins_all_that_the_tests_ask_for_within_its_bounds():
    pinned = locked()
    base = [requirement for part, requirement in requirements_of_users() if part == "base"]
    wanted = [
        *requirements_of_group("dev"),
        *base,
        *map(Requirement, PYPROJECT["build-system"]["requires"]),
    ]

    for requirement in wanted:
        versions = pinned.get(canonicalize_name(requirement.name), [])
        assert versions, f"{requirement.name} is not in the lock: make lock"
        assert all(requirement.specifier.contains(version) for version in versions), (
            f"{requirement}: make lock"
        )


def test_the_lock_consists_of_pinned_packages_and_hashes_and_names_no_registry():
    entries = re.split(
        r"\n(?! )",
        "".join(
            line for line in LOCK.splitlines(keepends=True) if not line.startswith("#")
        ).rstrip(),
    )

    assert len(entries) > 100
    for entry in entries:
        pin, *hashes = entry.split(" \\\n")
        assert re.fullmatch(r"[\w.-]+==[\w.!+-]+( ; [^\\/]+)?", pin), pin
        assert hashes
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", line) for line in hashes), pin


def test_make_installs_only_what_the_lock_has_a_hash_for(tmp_path):
    plan = ["make", "--dry-run", f"VENV={tmp_path}", f"{tmp_path}/.dev"]
    commands = subprocess.run(
        plan, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    installing = [
        command.partition(" -m pip install ")[2]
        for command in commands
        if " -m pip install " in command
    ]

    assert installing == [
        "--quiet --upgrade pip",
        "--quiet --require-hashes --requirement supply/requirements-dev.txt",
        "--quiet --no-deps --no-build-isolation --editable .",
    ]


def test_the_bill_of_materials_is_up_to_date():
    printed = subprocess.run(
        [sys.executable, "supply/sbom.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout

    assert json.loads(printed) == BILL, "make sbom"


def test_the_bill_of_materials_names_us_and_all_that_we_ask_for():
    import effectonce

    product = BILL["metadata"]["component"]
    listed = {
        (p["name"].removeprefix("effectonce:requirement:"), p["value"])
        for component in BILL["components"]
        for p in component["properties"]
        if p["name"].startswith("effectonce:requirement:")
    }

    assert (product["name"], product["version"]) == ("effectonce", effectonce.__version__)
    assert {(part, Requirement(text)) for part, text in listed} == set(requirements_of_users())
    assert sorted(BILL["dependencies"][0]["dependsOn"]) == sorted(
        component["bom-ref"] for component in BILL["components"]
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(folder),
    ]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_wheel_brings_its_bill_of_materials(wheel):
    (path,) = [name for name in wheel.namelist() if "/sboms/" in name]

    assert re.fullmatch(r"effectonce-[\w.]+\.dist-info/sboms/effectonce\.cdx\.json", path)
    assert json.loads(wheel.read(path)) == BILL


def test_the_wheel_brings_the_file_of_every_provider(wheel):
    from effectonce.providers import providers

    folder = "effectonce/providers/data/"
    files = [name.removeprefix(folder) for name in wheel.namelist() if name.startswith(folder)]

    assert sorted(files) == [f"{name}.toml" for name in providers()]


def test_the_scripts_of_others_in_the_wheel_are_those_of_the_bill_with_hash_and_licence(wheel):
    vendored = {
        p["value"]: c
        for c in BILL["components"]
        for p in c["properties"]
        if p["name"] == "effectonce:file"
    }
    scripts = {name for name in wheel.namelist() if "/vendor/" in name and name.endswith(".js")}
    licences = [name for name in wheel.namelist() if ".dist-info/licenses/" in name]
    (metadata,) = [
        wheel.read(name).decode()
        for name in wheel.namelist()
        if name.endswith(".dist-info/METADATA")
    ]

    assert scripts == set(vendored)
    for path, component in vendored.items():
        assert [h["content"] for h in component["hashes"]] == [
            hashlib.sha256(wheel.read(path)).hexdigest()
        ]
        assert (
            component["licenses"][0]["license"]["id"]
            in re.search(r"^License-Expression: (.+)$", metadata, re.MULTILINE)[1]
        )
    assert any(name.endswith("/htmx-LICENSE.txt") for name in licences)


# ---------------------------------------------------------------- the release


def described(archive):
    (text,) = [
        archive.read(name).decode()
        for name in archive.namelist()
        if name.endswith(".dist-info/METADATA")
    ]
    return text.partition("\n\n")


def links(text):
    return re.findall(r"\]\(([^)]+)\)", text)


def test_the_long_description_has_no_link_that_leads_nowhere(wheel):
    _, _, text = described(wheel)

    assert text.startswith("# effectonce\n")
    assert [link for link in links(text) if not link.startswith("https://")] == []
    assert "37 APIs whose keys" in text


def test_an_address_of_the_project_is_a_setting_of_the_build(tmp_path):
    address = "https://code.example/shop/effectonce"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory"]
    subprocess.run(
        [*build, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PROJECT_URL": f"{address}/"},
        check=True,
        capture_output=True,
    )
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        head, _, text = described(archive)

    assert f"Project-URL: Source, {address}\n" in head
    files = {link.removeprefix(f"{address}/blob/v0.1.0/") for link in links(text)}
    assert {"docs/reference/providers.md", "examples/refund_agent.py"} < files
    assert [f for f in files if not (ROOT / f.partition("#")[0]).exists()] == []


def test_two_builds_are_the_same_byte_by_byte(tmp_path):
    sys.path.insert(0, str(ROOT / "supply"))
    try:
        import release
    finally:
        sys.path.pop(0)

    first = release.built(tmp_path / "one", when=1_000_000_000, mask=0o022)
    second = release.built(tmp_path / "another one", when=1_700_000_000, mask=0o077)

    assert release.sums(first) == release.sums(second)
    assert len(release.sums(first).splitlines()) == 2
    assert release.report().count("\n") == len(release.pinned()) + 1


def test_the_wheel_brings_every_example(wheel):
    folder = "effectonce/examples/"
    shipped = {n.removeprefix(folder) for n in wheel.namelist() if n.startswith(folder)}

    assert shipped == {path.name for path in (ROOT / "examples").iterdir() if path.is_file()}


def test_python_versions_that_are_named_are_those_of_the_page():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
    page = (ROOT / "docs" / "reference" / "supply-chain.md").read_text()

    assert named == re.findall(r"^\| (3\.\d+) ", page, re.MULTILINE)
