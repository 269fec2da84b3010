"""`python -m atdm` is `atdm`."""

from atdm.cli import main

main()
