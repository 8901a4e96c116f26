"""`python -m gphash` is `gphash`."""

from gphash.cli.main import main

main()
