"""The command line: turns arguments into calls of a node or a client, and errors into exit codes.

Each command is a module; `application` knows them all. `import poe` never loads this package.
"""

from poe.cli.application import main

__all__ = ["main"]
