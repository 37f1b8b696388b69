from oncebench.cli import main

main()
