from effectonce.cli import main

main(prog_name="effectonce")
