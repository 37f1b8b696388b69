"""The second tier of frameworks, as seen from where none of them is installed. Their own tests:
`make test-frameworks`.
"""

import subprocess
import sys
import tomllib

import pytest

from tests.frameworks import pages, run


@pytest.mark.parametrize("name", run.frameworks())
def test_an_adapter_without_its_framework_says_how_to_install_it(name):
    code = f"import effectonce.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"ImportError: effectonce.integrations.{name} needs ")
    assert said.endswith(f"pip install 'effectonce[{name.replace('_', '-')}]'")


def test_what_the_page_shows_of_a_framework_is_run_by_its_tests():
    for name in pages.sections():
        tests = (run.HERE / name / f"test_{name}.py").read_text()
        assert f'pages.check("{name}"' in tests


def test_a_framework_that_there_is_none_of_is_told_with_those_that_there_are():
    done = subprocess.run(
        [sys.executable, run.__file__, "nothing"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert all(name in done.stderr for name in ("nothing", *run.frameworks()))


def test_every_framework_has_an_extra_an_adapter_and_a_section_of_the_page():
    extras = tomllib.loads((pages.ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]

    for name in run.frameworks():
        assert name.replace("_", "-") in extras
        assert (pages.ROOT / "src" / "effectonce" / "integrations" / f"{name}.py").exists()
        assert name in pages.sections()
