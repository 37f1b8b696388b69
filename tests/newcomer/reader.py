"""Read a page as a newcomer does: do what it says, from top to bottom, with what is installed.

    python reader.py PAGE WHEEL NAMES

It is run by the Python of a fresh environment and imports nothing of the repository. `pip install
effectonce` installs WHEEL. NAMES is a JSON object of what the page takes for granted besides banks.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def run(command, expected, wheel):
    """One command of a transcript prints what the page shows. What pip prints is its own."""
    installs = command.startswith("pip install")
    if installs:
        command = re.sub(r"\beffectonce\b", wheel, command)
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    shown = done.stdout + ("Killed\n" if done.returncode in (-9, 137) else done.stderr)
    pattern = ".*".join(re.escape(part) for part in expected.split("…"))
    if (installs and done.returncode) or not (installs or re.fullmatch(pattern, shown, re.DOTALL)):
        raise SystemExit(f"`{command}` printed:\n{shown}\nand the page says:\n{expected}")


def read(page, wheel, names, port):
    text, done = page.read_text(), 0
    text = text.replace("https://api.bank.example", f"http://127.0.0.1:{port}")
    for block in BLOCK.finditer(text):
        language, code = block.groups()
        if language == "console":
            for command, expected in COMMAND.findall(code):
                run(command, expected, wheel)
                done += 1
            continue
        said = io.StringIO()
        line = text[: block.start()].count("\n") + 1
        with contextlib.redirect_stdout(said):
            exec(compile("\n" * line + code, str(page), "exec"), names)
        done += 1
        for promised in re.findall(r"print\(.*\) +# (.+)$", code, re.MULTILINE):
            if promised.split(":")[0] not in said.getvalue():
                raise SystemExit(
                    f"line {line} promises {promised!r}, and printed {said.getvalue()}"
                )
    return done


def main():
    page, wheel, given = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    with contextlib.suppress(ImportError):  # an environment without pip has it already
        import pip

        run(f"pip install --quiet effectonce  # pip {pip.__version__}", "", wheel)
    from stand_ins import HonestBank, SlowBank, UnluckyBank

    import effectonce
    from effectonce.testing.bank import Bank

    banks = {"bank": HonestBank, "slow_bank": SlowBank, "unlucky_bank": UnluckyBank}
    with contextlib.ExitStack() as stack:
        names = {"__name__": "page"} | given
        for name, client in banks.items():
            honours = name != "slow_bank"
            names[name] = client(
                stack.enter_context(Bank(f"of-{name}.ledger", honours_keys=honours))
            )
        done = read(page, wheel, names, names["bank"].process.port)
    here = Path(effectonce.__file__)
    print(json.dumps({"blocks": done, "effectonce": os.fspath(here), "prefix": sys.prefix}))


if __name__ == "__main__":
    main()
