"""`python -m effectonce`: the command line, where no script is on the path."""

from effectonce.cli import main

main(prog_name="effectonce")
