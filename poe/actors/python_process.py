"""The command that runs a module of Poe in a Python process of its own."""

import sys


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that calls the `main` of a module, with `arguments` in `sys.argv`.

    The new interpreter looks for modules where this one does. `python -m` would look into the
    current folder first, which need not be the place that this program was started from.
    """
    code = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; sys.exit(main())"
    return [sys.executable, "-c", code, *arguments]
