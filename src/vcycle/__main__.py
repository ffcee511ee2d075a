"""`python -m vcycle`."""

from vcycle.cli.app import main

main()
