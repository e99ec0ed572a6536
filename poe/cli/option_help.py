"""Turns the options' own docstrings into help texts.

An option is described in one place only, the string below its field. Python does not keep these
strings at run time, so they are read from the source; where no source was installed, help goes
without them.
"""

import ast
import inspect
from contextvars import ContextVar

is_help_asked = ContextVar("is_help_asked", default=True)
"""Else nobody is shown what an option does: to read the source takes a tenth of a start."""


def field_docstrings(options_class: type) -> dict[str, str]:
    """Return the first paragraph of the string below each field of a class, by name."""
    if not is_help_asked.get():
        return {}
    try:
        source = inspect.getsource(options_class)
    except OSError:
        return {}
    body = ast.parse(inspect.cleandoc(source)).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value).partition("\n\n")[0]
        for field, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
