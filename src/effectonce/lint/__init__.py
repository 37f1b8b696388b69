"""The pre-merge checklist as a lint: it reads Python, imports nothing of it, and says what a
retry would do twice.

    for finding in check(["src"]):
        print(finding.path, finding.line, finding.code, finding.message)

Each rule is a function over one file (`_keys`, `_effects`, `_endpoints`, `_retries`,
`_statuses`, `_declarations`), and a page in `rules/` that says why, with an example of what is
found and one of what is not. A rule speaks only of what the file shows: names mean what its
imports and assignments say (`_source`), and what that is stands in tables (`_known`). Where it
cannot be known, nothing is reported.
"""

from effectonce.lint._check import CODES, check, check_source, files
from effectonce.lint._finding import LintFinding, RulePage, page

__all__ = ["CODES", "LintFinding", "RulePage", "check", "check_source", "files", "page"]
