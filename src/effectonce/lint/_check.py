"""Files in, findings out."""

from __future__ import annotations

import ast
import os
import stat
import sys
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from effectonce.lint import (
    _declarations,
    _effects,
    _endpoints,
    _keys,
    _providers,
    _retries,
    _statuses,
)
from effectonce.lint import _known as known
from effectonce.lint._allow import AllowComment, allowances
from effectonce.lint._finding import Hit, LintFinding, LintRules
from effectonce.lint._reading import Reading
from effectonce.lint._source import Module

UNREADABLE, UNEXPLAINED, UNUSED = "EO001", "EO002", "EO003"
_ROOMS = (_keys, _effects, _endpoints, _retries, _statuses, _declarations, _providers)
RULES: LintRules = dict(sorted(rule for room in _ROOMS for rule in room.RULES.items()))
CODES: tuple[str, ...] = (UNREADABLE, UNEXPLAINED, UNUSED, *RULES)
SOURCE_MAX = 10_000_000  # bytes; the longest that people write is a tenth of it
_PASSED_BY = ("node_modules", "__pycache__", "site-packages")
_TESTS = ("tests", "test")
_ADAPTERS = "effectonce.integrations."
_VERSION = ".".join(map(str, sys.version_info[:2]))  # what this runs on, and can read


@dataclass(frozen=True, slots=True)
class Report:
    """What one file has, before it is known what others have."""

    findings: tuple[LintFinding, ...] = ()
    allowances: tuple[AllowComment, ...] = ()
    # of effectonce.integrations, and the middleware, that it has
    adapters: frozenset[str] = frozenset()


def check(
    paths: Iterable[str | os.PathLike[str]], *, codes: Iterable[str] = CODES
) -> list[LintFinding]:
    """Check files, and the files of folders. What one of them protects is protected for all."""
    chosen = frozenset(codes)
    return judged([(str(path), report(path, chosen)) for path in files(paths)], chosen)


def check_source(
    source: str | bytes, *, path: str = "<source>", codes: Iterable[str] = CODES
) -> list[LintFinding]:
    """Check one text."""
    chosen = frozenset(codes)
    content = source.encode() if isinstance(source, str) else source
    return judged([(path, _report(content, path, chosen))], chosen)


# ---------------------------------------------------------------- which files


def files(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Path]:
    """The Python files, each once. Tests, hidden folders, environments etc. only if named."""
    seen: set[str] = set()
    for path in map(Path, paths):
        for file in _below(path) if path.is_dir() else [path]:
            if (real := os.path.realpath(file)) not in seen:
                seen.add(real)
                yield file


def _below(root: Path) -> Iterator[Path]:
    tests_too = not set(_TESTS).isdisjoint(root.parts)
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name for name in folders if not _is_passed_by(Path(folder, name), tests_too=tests_too)
        )
        for name in sorted(names):
            if name.endswith(".py") and (tests_too or not _is_test(name)):
                yield Path(folder, name)


def _is_passed_by(folder: Path, *, tests_too: bool) -> bool:
    name = folder.name
    if name.startswith(".") or name in _PASSED_BY or (folder / "pyvenv.cfg").exists():
        return True
    return name in _TESTS and not tests_too


def _is_test(name: str) -> bool:
    return name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"


# ---------------------------------------------------------------- one file


def report(path: Path, codes: frozenset[str]) -> Report:
    """What is in a file. One that cannot be read is a finding."""
    try:
        source = _content(path)
    except OSError as error:
        return _unreadable(str(path), f"cannot be read: {error.strerror}")
    if source is None:
        most = f"{SOURCE_MAX // 1_000_000} MB"
        return _unreadable(str(path), f"is no ordinary file, or larger than {most}")
    return _report(source, str(path), codes)


def _content(path: Path) -> bytes | None:
    """Content of an ordinary file of usual size. A pipe would block, and a device may never end."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > SOURCE_MAX:
            return None
        return file.read(SOURCE_MAX)


def _report(source: bytes, path: str, codes: frozenset[str]) -> Report:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what else is odd about a file others tell
            tree = ast.parse(source, path)
        if not _is_about_us(source):
            return Report()
        reading = Reading(Module(tree))
        chosen = (item for item in RULES.items() if item[0] in codes)
        found = [_finding(path, code, hit) for code, look in chosen for hit in look(reading)]
        allowed = tuple(allowances(source))
    except SyntaxError as error:
        why = f"is no Python {_VERSION}: {error.msg}"
        return _unreadable(path, why, error.lineno or 1, error.offset or 1)
    except ValueError as error:  # a null byte
        return _unreadable(path, f"is no Python {_VERSION}: {error}")
    except (RecursionError, MemoryError):
        return _unreadable(path, "is nested too deeply")
    adapters = frozenset(
        name.removeprefix(_ADAPTERS).partition(".")[0]
        for name in reading.module.modules
        if name.startswith(_ADAPTERS)
    )
    middleware = {_endpoints.MIDDLEWARE} if _endpoints.has_middleware(reading.module) else set()
    return Report(tuple(dict.fromkeys(found)), allowed, adapters | middleware)


def _is_about_us(source: bytes) -> bool:
    """Most files are not: a look at their words is much faster than one at their names."""
    text = source.lower().decode("latin-1")  # the words are ASCII

    def has(words: frozenset[str]) -> bool:
        return any(word in text for word in words)

    return has(known.WORDS) or (has(known.SENDS) and (has(known.LOOPS) or has(known.SERVES)))


def _unreadable(path: str, why: str, line: int = 1, column: int = 1) -> Report:
    message = f"this file {why}. Nothing in it was checked."
    return Report((_in_line(path, line, max(column, 1), UNREADABLE, message),))


def _in_line(path: str, line: int, column: int, code: str, message: str) -> LintFinding:
    return LintFinding(
        path=path, line=line, column=column, code=code, message=message, end_line=line
    )


def _finding(path: str, code: str, hit: Hit) -> LintFinding:
    node = hit.node
    line: int = getattr(node, "lineno", 1)
    body, last = getattr(node, "body", None), getattr(node, "end_lineno", line)
    if isinstance(body, list) and body:
        last = body[0].lineno - 1
    return LintFinding(
        path=path,
        line=line,
        column=getattr(node, "col_offset", 0) + 1,
        code=code,
        message=hit.message,
        end_line=max(line, last),
        unless=hit.unless,
        given=hit.given,
    )


# ---------------------------------------------------------------- all of them


def judged(reports: Sequence[tuple[str, Report]], codes: frozenset[str]) -> list[LintFinding]:
    """What is left when allowances, and what other files protect, are taken off."""
    adapters = frozenset[str]().union(*(report.adapters for _, report in reports))
    # one server may be made with either
    adapters |= {"mcp", "fastmcp"} if adapters & {"mcp", "fastmcp"} else set()
    found: list[LintFinding] = []
    for path, each in reports:
        holding = (finding for finding in each.findings if _holds(finding, adapters))
        left, used = _excused([replace(f, unless="", given="") for f in holding], each.allowances)
        found += left
        for allowance in each.allowances:
            found += _about(path, allowance, used, codes)
    asked = (finding for finding in found if finding.code in codes)
    return sorted(asked, key=lambda f: (f.path, f.line, f.column, f.code))


def _excused(
    found: list[LintFinding], allowed: Sequence[AllowComment]
) -> tuple[list[LintFinding], set[tuple[AllowComment, str]]]:
    """Findings that nothing allows, and the allowances that were of use. Both looked up by line."""
    by_code: dict[str, list[AllowComment]] = {}
    for allowance in sorted(allowed, key=lambda each: each.covers):
        for code in dict.fromkeys(allowance.codes):
            by_code.setdefault(code, []).append(allowance)
    lines = {code: [each.covers for each in several] for code, several in by_code.items()}
    # how many findings begin, less those that ended
    begins = {code: [0] * (len(several) + 1) for code, several in by_code.items()}
    left = []
    for finding in found:
        there = lines.get(finding.code, [])
        first, end = bisect_left(there, finding.line), bisect_right(there, finding.end_line)
        if first >= end:
            left.append(finding)
            continue
        begins[finding.code][first] += 1
        begins[finding.code][end] -= 1
    covered = {code: accumulate(counts) for code, counts in begins.items()}
    return left, {
        (each, code)
        for code, several in by_code.items()
        for each, n in zip(several, covered[code], strict=False)
        if n
    }


def _holds(finding: LintFinding, adapters: frozenset[str]) -> bool:
    return finding.unless not in adapters and (not finding.given or finding.given in adapters)


def _about(
    path: str, allowance: AllowComment, used: set[tuple[AllowComment, str]], codes: frozenset[str]
) -> Iterator[LintFinding]:
    def finding(code: str, message: str) -> LintFinding:
        return _in_line(path, allowance.line, allowance.column, code, message)

    if not allowance.codes:
        unread = "this comment cannot be read. Write `# effectonce: allow EO101 because ...`."
        yield finding(UNEXPLAINED, unread)
    elif not allowance.reason:
        yield finding(
            UNEXPLAINED,
            "this allowance gives no reason, and the next reader has to guess. Write `because ...`"
            " after its code.",
        )
    for code in allowance.codes:
        if code not in CODES:
            unknown = f"there is no rule {code}. `effectonce lint --explain all` lists them."
            yield finding(UNUSED, unknown)
        elif code in codes and (allowance, code) not in used:
            later = f"nothing here is {code}: this allows what comes later. Remove it."
            yield finding(UNUSED, later)
