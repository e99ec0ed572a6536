"""What may be different for one topic than for the others of a store."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self, get_args

from poe.errors import OptionError
from poe.option import NONE_WORDS, fixed_path

AckLevel = Literal["memory", "flushed", "fsync"]
"""What a put waits for: a copy in memory, the kernel, or the disk; each includes those before."""

_TEXT = "NAME.OPTION=VALUE, several of them separated by commas, as in orders.ack=fsync"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """The options of one topic; None stands for the option of the node.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    topic: str
    """Its name; `SegmentOptions` looks whether its policy allows it."""

    ack: AckLevel | None = None
    """What a put onto it waits for."""

    archive_dir: Path | Literal["none"] | None = None
    """Folder that its segments are archived into before they expire; `none`: they just expire."""

    def __post_init__(self) -> None:
        """Reject levels that there are not, and what is no folder."""
        if self.ack is not None and self.ack not in get_args(AckLevel):
            key = f"topics.{self.topic}.ack"
            raise OptionError(key, self.ack, " or ".join(get_args(AckLevel)))
        if self.archive_dir is not None:
            folder = _folder(f"topics.{self.topic}.archive_dir", self.archive_dir)
            object.__setattr__(self, "archive_dir", folder)

    def as_row(self) -> dict[str, str]:
        """Return its own options as they stand in a file."""
        given = {"ack": self.ack, "archive_dir": self.archive_dir}
        return {name: str(value) for name, value in given.items() if value is not None}

    @classmethod
    def from_table(cls, where: str, table: Any) -> tuple[Self, ...]:  # noqa: ANN401 - to be checked
        """Read topics as they stand in a file or in Python: {name: {option: value}}.

        Raises:
            OptionError: it is no such table; the key begins with `where`.
        """
        if not isinstance(table, dict):
            raise OptionError(where, table, 'a table for each topic, as in {"orders": {"ack": …}}')
        names = [field.name for field in fields(cls) if field.name != "topic"]
        rows = []
        for topic, row in table.items():
            key = f"{where}.{topic}"
            if not isinstance(row, dict):
                raise OptionError(key, row, f"a table of {', '.join(names)}")
            for name in row.keys() - set(names):
                key = f"{key}.{name}"
                raise OptionError(key, row[name], ", ".join(names))
            rows.append(cls(topic=str(topic), **row))
        return tuple(rows)

    @classmethod
    def from_text(cls, where: str, text: str) -> tuple[Self, ...]:
        """Read topics as they stand in a variable: `orders.ack=fsync,audit.ack=memory`.

        Raises:
            OptionError: it is no such text.
        """
        table: dict[str, dict[str, str]] = {}
        for part in text.split(","):
            key, equals, value = part.partition("=")
            # From the right: the name of a topic may hold dots, that of an option holds none.
            topic, dot, name = key.strip().rpartition(".")
            if not (equals and dot):
                raise OptionError(where, text, _TEXT)
            table.setdefault(topic, {})[name] = value.strip()
        return cls.from_table(where, table)


def _folder(key: str, value: object) -> Path | Literal["none"]:
    if not isinstance(value, str | Path) or value == "":
        raise OptionError(key, value, 'a path or "none"')
    return "none" if str(value).lower() in NONE_WORDS else fixed_path(key, value)
