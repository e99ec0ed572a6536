"""The command that runs a module of Poe in a Python process of its own."""

import sys


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that calls the `main` of a module, with `arguments` in `sys.argv`.

    The new interpreter looks for modules where this one does. `python -m` would look into the
    current folder first, which need not be the place that this program was started from. SIGHUP is
    ignored from the start, as it is by the program, unless the module takes it.
    """
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        f"sys.path[:] = {sys.path!r}; from {module} import main; sys.exit(main())"
    )
    return [sys.executable, "-c", code, *arguments]
