"""What the docs show about a framework of the second tier is run here, where it is installed.

In its section, code stands in blocks of `py` and transcripts in blocks of `shell-session`:
`tests/test_docs.py`, which runs where none of these frameworks is installed, passes both by, and
`tests/test_frameworks.py` asserts that each such section is run here.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "docs" / "howto" / "agents.md", ROOT / "docs" / "howto" / "restate.md"]
BLOCK = re.compile(r"^```(py|shell-session)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def sections():
    """The blocks of each section that has such blocks, by the name of its framework: the extra
    that it tells to install.
    """
    parts = [
        part for page in PAGES for part in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)
    ]
    mine = [part for part in parts if BLOCK.search(part)]
    return {
        re.search(r"effectonce\[([\w-]+)\]", part)[1].replace("-", "_"): BLOCK.findall(part)
        for part in mine
    }


def check(name, bank, folder, **given):
    """Run the code of a section with *bank*, a guard and what is *given*, and replay its
    transcripts in *folder*.
    """
    from effectonce import Guard

    (folder / "examples").symlink_to(ROOT / "examples")
    names = {"__name__": "page", "bank": bank, "guard": Guard("memory://"), **given}
    for language, text in sections()[name]:
        if language == "py":
            exec(compile(text, f"what the docs say about {name}", "exec"), names)
        for command, expected in re.findall(
            r"^\$ python (.+)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE
        ):
            done = subprocess.run(
                [sys.executable, *command.split()],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.stdout == expected, (
                f"`python {command}` printed\n{done.stdout}{done.stderr}"
            )
    names["guard"].close()
