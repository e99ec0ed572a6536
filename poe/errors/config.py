"""1xx: configuration that cannot be used."""

from poe.errors.root import PoeError
from poe.errors.short_text import short_repr


class ConfigError(PoeError):
    """A configuration that cannot be used."""

    code = 100


class OptionError(ConfigError):
    """One option has an unknown name or a value that is not allowed."""

    code = 101

    def __init__(self, key: str, value: object, allowed: str) -> None:
        self.key = key
        self.value = value
        self.allowed = allowed
        super().__init__(f"option {key!r} is {short_repr(value)}; use {allowed}")


class UnknownOption(OptionError):
    """An option of this name does not exist."""

    code = 102

    def __init__(self, key: str, allowed: str) -> None:
        self.key = key
        self.value = None
        self.allowed = allowed
        ConfigError.__init__(self, f"option {short_repr(key)} is not known; use {allowed}")
