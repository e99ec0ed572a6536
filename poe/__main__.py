"""Turns `python -m poe …` into the command line of `poe.cli`; holds no behaviour of its own."""

import sys

from poe.cli import main

if __name__ == "__main__":
    sys.exit(main())
