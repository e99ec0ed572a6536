"""Turns what Spark raises into the words for a person."""

import re

_REASON_MAX = 1000
_RAISED = re.compile(
    r'^  File "([^"\n]+)", line (\d+).*\n(?:    .*\n)*(\w[\w.]*(?::.*)?)$', re.MULTILINE
)
"""The end of a Python traceback within a text: its innermost frame, and the error."""


def reason_of(error: BaseException) -> str:
    """Return what an error says to a person: without stacks and plans.

    Of a Python function that failed, wherever Spark has run it, its error and its line.
    """
    told = str(error).partition("\n\nJVM stacktrace:")[0].partition("\n\tat ")[0]
    raised = _RAISED.findall(told)
    if raised:
        path, line, what = raised[-1]
        return f"{what} ({path}, line {line})"[:_REASON_MAX]
    lines: list[str] = []
    for line in told.splitlines():
        if line.startswith(("'", "+-", "=== Streaming Query", "== Physical")) and lines:
            break
        if line.strip():
            lines.append(line.strip())
    kind = "" if type(error).__module__.startswith("pyspark") else f"{type(error).__name__}: "
    return (kind + " ".join(lines))[:_REASON_MAX]
