"""Lists every error with its code, as in `docs/formats.md`.

`python -m tests.error_table` renews the table there; a test compares it.
"""

from pathlib import Path

from poe import errors
from poe.storage.slab_log import errors as slab_log_errors

DOCUMENT = Path(__file__).parent.parent / "docs" / "formats.md"
BEGIN, END = "<!-- begin: errors -->\n", "<!-- end: errors -->"


def classes() -> list[type[errors.PoeError]]:
    """Every error class, by code."""
    found = [
        each
        for each in (vars(errors) | vars(slab_log_errors)).values()
        if isinstance(each, type) and issubclass(each, errors.PoeError)
    ]
    return sorted(found, key=lambda each: each.code)


def rows() -> list[str]:
    """The table's lines."""
    return [
        f"| {each.code} | {each.__name__} | {'yes' if each.retriable else ''} |"
        for each in classes()
    ]


def main() -> None:
    """Renew the table."""
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    tail = rest.partition(END)[2]
    DOCUMENT.write_text("".join([head, BEGIN, *(f"{row}\n" for row in rows()), END, tail]))


if __name__ == "__main__":
    main()
