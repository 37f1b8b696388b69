"""Two functions of one name: refused where both are written, replaced where the source was read
again.
"""

import importlib
import linecache
import sys
import textwrap

import pytest

from effectonce import ContractViolation, Guard

HEAD = "from shared_guard import guard, decorated\n\n"
PAY = HEAD + '@guard.tool(kind="write")\ndef pay(n: int):\n    return "first"\n'


@pytest.fixture
def write(tmp_path, monkeypatch, guard):
    """Write a module and import it, or import it again."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within a second is an edit
    (tmp_path / "shared_guard.py").write_text(
        textwrap.dedent("""
            import functools
            guard = None
            def decorated(function):
                @functools.wraps(function)
                def around(*args, **kwargs):
                    return function(*args, **kwargs)
                return around
            """)
    )
    importlib.import_module("shared_guard").guard = guard

    def write(source):
        (tmp_path / "tools_of_the_test.py").write_text(source)
        importlib.invalidate_caches()
        known = sys.modules.get("tools_of_the_test")
        return (
            importlib.import_module("tools_of_the_test")
            if known is None
            else importlib.reload(known)
        )

    yield write
    for name in ("tools_of_the_test", "shared_guard"):
        sys.modules.pop(name, None)


def called(guard, module):
    with guard.step("chat", f"step {called.steps}"):
        called.steps += 1
        return module.pay(1)


called.steps = 0


@pytest.mark.parametrize("decorator", ["", "@decorated\n"])
def test_a_tool_that_is_written_twice_in_one_module_is_refused(write, decorator):
    second = f'\n@guard.tool(kind="write")\n{decorator}def pay(n: int):\n    return "second"\n'

    with pytest.raises(
        ContractViolation,
        match=r"tools_of_the_test\.pay is written twice, on lines 3 and \d+\. In one step",
    ):
        write(PAY.replace("def pay", f"{decorator}def pay") + second)


def test_a_tool_that_is_written_twice_in_one_class_or_function_is_refused(guard):
    @guard.tool(kind="write")
    def pay(n: int):
        return "first"

    with pytest.raises(ContractViolation, match="is written twice"):

        @guard.tool(kind="write")
        def pay(n: int):
            return "second"


def test_two_of_one_name_that_are_given_names_are_two_tools(write, guard):
    module = write(
        PAY
        + '\nfirst = pay\n@guard.tool(kind="write", name="pay again")\ndef pay(n: int):\n    return'
        ' "second"\n'
    )

    with guard.step("chat", "pay"):
        assert (module.first(1), module.pay(1)) == ("first", "second")


@pytest.mark.parametrize("decorator", ["", "@decorated\n"])
@pytest.mark.parametrize(
    "edit",
    [
        lambda source: source,
        lambda source: source.replace("first", "second"),
        lambda source: source.replace(HEAD, HEAD + "\nLIMIT = 3\n\n"),
        lambda source: source.replace(HEAD, HEAD + "\nLIMIT = 3\n\n").replace("first", "second"),
    ],
    ids=["unchanged", "another body", "moved", "moved and another body"],
)
def test_a_module_that_is_edited_and_read_again_has_the_newer_tool(write, guard, edit, decorator):
    source = PAY.replace("def pay", f"{decorator}def pay")
    assert called(guard, write(source)) == "first"

    assert called(guard, write(edit(source))) == ("second" if "second" in edit(source) else "first")


def cell(source, guard, name):
    """Run a cell as a notebook does: each run has a file name of its own, or the same again, and
    its source is known.
    """
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope = {"guard": guard, "__name__": "__main__"}
    exec(compile(source, name, "exec"), scope)
    return scope["pay"]


@pytest.mark.parametrize("again", ["<cell 1>", "<cell 2>"])
def test_a_cell_of_a_notebook_that_is_edited_and_run_again_has_the_newer_tool(guard, again):
    source = PAY.removeprefix(HEAD)
    cell(source, guard, "<cell 1>")

    pay = cell("\n\n" + source.replace("first", "second"), guard, again)

    with guard.step("chat", "pay"):
        assert pay(1) == "second"


def test_a_cell_that_has_it_twice_is_refused(guard):
    source = PAY.removeprefix(HEAD)

    with pytest.raises(ContractViolation, match="is written twice"):
        cell(source + "\n" + source, guard, "<cell 3>")


@pytest.mark.parametrize("source", ["not python (", "a\0b"])
def test_source_that_cannot_be_read_does_not_stop_a_tool(guard, source):
    pay = PAY.removeprefix(HEAD)
    cell(pay, guard, "<cell 4>")
    linecache.cache["<cell 4>"] = (len(source), None, [source], "<cell 4>")

    scope = {"guard": guard, "__name__": "__main__"}
    exec(compile("\n\n" + pay, "<cell 4>", "exec"), scope)


def test_a_factory_that_is_read_again_makes_the_same_tools(write, guard):
    source = HEAD + textwrap.dedent("""
        def make(account):
            def sent():
                return account
            def again(n):
                return again(n - 1) if n else sent()
            @guard.tool(kind="write")
            def pay(n: int):
                return again(n)
            return pay
        pay = make("A")
        """)
    assert called(guard, write(source)) == "A"
    assert called(guard, write(source)) == "A"
    with pytest.raises(ContractViolation, match="other captured values"):
        write(source.replace('"A"', '"B"'))


def test_a_workflow_that_is_read_again_is_the_same(write, guard):
    source = (
        HEAD
        + "@guard.workflow\ndef pay(run, n: int):\n    return run.step('one', lambda: 'first')\n"
    )

    assert called(guard, write(source)) == "first"
    assert called(guard, write(source.replace("first", "second"))) == "second"
    with pytest.raises(ContractViolation, match="is written twice"):
        write(source + "\n" + source.removeprefix(HEAD))


def test_one_name_in_two_guards_on_one_store_is_logged_where_both_are_written(store, caplog):
    one, other = Guard(store), Guard(store)

    @one.tool(kind="write")
    def pay(n: int):
        return "first"

    @other.tool(kind="write")
    def pay(n: int):  # noqa: F811  # that is what it is about
        return "second"

    assert "two guards on one store have a tool called 'pay'" in caplog.text
