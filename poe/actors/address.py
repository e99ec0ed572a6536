"""Addresses of actors on the loop base: hashable, and resolved without a look-up."""

from typing import TYPE_CHECKING, Any, TypeAlias

from thespian.actors import ActorAddress

if TYPE_CHECKING:
    from poe.actors.actor_cell import ActorCell

ActorRef: TypeAlias = ActorAddress
"""What user code holds of another actor, on every system base."""


class LoopAddress(ActorAddress):  # type: ignore[misc]  # Thespian is untyped
    """The address of one actor; it leads straight to the actor's cell.

    An address outlives its actor and is never reused: `serial` counts all actors of a system.
    Two addresses are equal only if they are the same actor of the same system.
    """

    __slots__ = ("cell", "label", "serial")

    def __init__(self, cell: "ActorCell", serial: int, label: str) -> None:
        # Thespian's constructor is skipped on purpose: it would store a second copy of the
        # address in an instance dictionary, 100 bytes for each of 10 000 idle actors.
        self.cell = cell
        self.serial = serial
        self.label = label

    @property
    def addressDetails(self) -> str:  # noqa: N802 - Thespian's name
        """Return the text that identifies the actor within its system."""
        return f"{self.label}.{self.serial}"

    @property
    def actorAddressString(self) -> str:  # noqa: N802 - Thespian's name
        """Return the same text; Thespian asks for it under this name."""
        return self.addressDetails

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return self.serial

    def __deepcopy__(self, memo: object) -> "LoopAddress":
        """Return this address: a copy would be nobody's, and take the whole system along."""
        return self

    def __str__(self) -> str:
        return self.addressDetails

    __repr__ = __str__


def cell_of(ref: Any) -> "ActorCell":  # noqa: ANN401 - to be checked
    """Return the cell behind an address.

    Raises:
        TypeError: it is none.
    """
    try:
        return ref.cell  # type: ignore[no-any-return]  # what else has none
    except AttributeError:
        way_out = "use whereis(name) for the ref" if isinstance(ref, str) else "use what start gave"
        msg = f"{ref!r} is no actor's ref; {way_out}"
        raise TypeError(msg) from None
