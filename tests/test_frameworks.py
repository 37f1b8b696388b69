"""The second tier of frameworks, as seen from where none of them is installed. Their own tests: `make test-frameworks`."""

import subprocess
import sys

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
