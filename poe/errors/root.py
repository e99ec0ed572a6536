"""The root of the tree of errors, and how errors travel between processes."""

from typing import ClassVar


class PoeError(Exception):
    """Root of all errors that Poe raises on purpose."""

    code: ClassVar[int] = 1
    retriable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the sentence and the attributes; a subclass's own arguments are not kept."""
        return _restored, (type(self), self.args, vars(self))


def _restored(
    kind: type[PoeError], args: tuple[object, ...], attributes: dict[str, object]
) -> PoeError:
    """Make an error from its pickled parts, without the constructor that made its sentence."""
    error = kind.__new__(kind, *args)
    vars(error).update(attributes)
    return error


def shown(topic: bytes) -> str:
    """Return the topic's name in quotes, with whatever could break the line escaped."""
    return repr(topic.decode("utf-8", "backslashreplace"))
