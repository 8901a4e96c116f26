"""`python -m gphash` is `gphash`."""

from gphash.cli import main

main()
