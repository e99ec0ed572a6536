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


_NAME_MAX = 255


def shown(topic: bytes) -> str:
    """Return the topic's name in quotes, with whatever could break the line escaped.

    Who gives a name may give a huge one: of what no topic can be called the begin is enough.
    """
    text = repr(topic[:_NAME_MAX].decode("utf-8", "backslashreplace"))
    return text if len(topic) <= _NAME_MAX else f"{text}..."
