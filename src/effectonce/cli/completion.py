"""`effectonce completion`: what a shell needs to complete commands and options."""

from __future__ import annotations

import click

from effectonce.cli._console import echo


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> None:
    r"""Print the completion script of a shell.

    \b
    Examples:
      effectonce completion bash > ~/.local/share/bash-completion/completions/effectonce
      effectonce completion zsh > "${fpath[1]}/_effectonce"
      effectonce completion fish > ~/.config/fish/completions/effectonce.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    echo(found(root, {}, "effectonce", "_EFFECTONCE_COMPLETE").source())
