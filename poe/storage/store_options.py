"""The options of a store."""

from dataclasses import dataclass

from poe.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """What a store asks of its folder and of the disk below it.

    Raises:
        OptionError: on construction, naming the option and what is allowed.
    """

    min_free: int = 128 * 1024 * 1024
    """Bytes free on the disk, below which puts are refused; 0 fills it."""

    def __post_init__(self) -> None:
        """Reject what is none."""
        if self.min_free < 0:
            raise OptionError("min_free", self.min_free, "0 or more (bytes)")
