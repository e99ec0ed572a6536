"""460 to 469, and 473: what a group of consumers refuses."""

from poe.errors.broker import BrokerError
from poe.errors.root import shown
from poe.errors.short_text import short_repr


class GroupError(BrokerError):
    """A group cannot do what was asked."""

    code = 460


class UnknownGroup(GroupError):
    """There is no group of this name."""

    code = 461

    def __init__(self, group: str) -> None:
        self.group = group
        super().__init__(
            f"group {short_repr(group)} is not known; its first member makes it, and "
            "`poe group list` tells which there are"
        )


_MISMATCHES = {
    "mode": "group {group} is of mode {has}, not {asked}; a `Queue` and `poe work` are for shared, "
    "a `Consumer` for ordered: take the other, or choose another group",
    "topics": "group {group} has topics {has}, not {asked}; give those, or choose another group "
    "(`group=…`; of `poe work`: `--group`)",
    "name": "group name {group} is in use; join that group, delete it, or choose another name",
}
_OTHER = "group {group} has {has}, not {asked}; ask for what it has, or choose another group"
_SHOWN_MAX = 10


class GroupMismatch(GroupError):
    """A group is not what the caller takes it for."""

    code = 462

    def __init__(self, group: str, what: str, asked: object, has: object) -> None:
        self.group = group
        self.what = what
        self.asked = asked
        self.has = has
        told = {"group": short_repr(group), "has": _text(has), "asked": _text(asked)}
        super().__init__(_MISMATCHES.get(what, _OTHER).format(**told))


class GroupFenced(GroupError):
    """The caller is no member any more, or was one in an earlier life of the group."""

    code = 463

    def __init__(self, group: str, why: str) -> None:
        self.group = group
        self.why = why
        super().__init__(f"group {short_repr(group)} refuses this member ({why}); join it anew")


class GroupActive(GroupError):
    """A group has members, and what was asked would take their work from under them."""

    code = 464

    def __init__(self, group: str, members: int) -> None:
        self.group = group
        self.members = members
        count = "1 member" if members == 1 else f"{members} members"
        super().__init__(f"group {short_repr(group)} has {count}; stop them first, or use force")


class GroupFull(GroupError):
    """A limit of a group is reached; the request was not done."""

    code = 465
    retriable = True

    def __init__(self, group: str, limit: str, maximum: int) -> None:
        self.group = group
        self.limit = limit
        self.maximum = maximum
        super().__init__(
            f"group {short_repr(group)} is full: {limit} of {maximum} is reached; retry later, "
            "acknowledge what is held, or raise it"
        )


class LeaseLost(GroupError):
    """A lease has expired, was returned, or never was: its messages may be another member's."""

    code = 466

    def __init__(self, group: str, lease: int) -> None:
        self.group = group
        self.lease = lease
        super().__init__(
            f"lease {lease} of group {short_repr(group)} is not held; its messages are delivered "
            "again: extend a lease before it expires"
        )


class RangeNotLeased(GroupError):
    """What was acknowledged is not of the lease; nothing of the request was done."""

    code = 473

    def __init__(self, group: str, lease: int, after: int, last: int) -> None:
        self.group = group
        self.lease = lease
        self.after = after
        self.last = last
        super().__init__(
            f"lease {lease} of group {short_repr(group)} holds no range behind {after} up to "
            f"{last}; acknowledge parts of what it has handed out"
        )


class InvalidGroupName(GroupError):
    """A name that no group may have."""

    code = 467

    def __init__(self, name: object) -> None:
        self.name = name
        super().__init__(
            f"group name {short_repr(name)} is not allowed; use 1 to 200 of A-Z, a-z, 0-9, '.', "
            "'_' and '-', and no dot at the start"
        )


class CorruptGroup(GroupError):
    """What the log holds of a group cannot be read."""

    code = 474

    def __init__(self, group: str) -> None:
        self.group = group
        super().__init__(
            f"the state of group {short_repr(group)} is damaged, and so is the one before it; "
            "delete the group with force, and reset a new one to where it was"
        )


class GroupPaused(GroupError):
    """A group hands nothing out until it is resumed."""

    code = 469
    retriable = True

    def __init__(self, group: str) -> None:
        self.group = group
        super().__init__(f"group {short_repr(group)} is paused; resume it, or retry later")


def _text(value: object) -> str:
    """Return a mode, or names of topics, as people write them."""
    if not isinstance(value, list):
        return short_repr(value)
    more = ", …" if len(value) > _SHOWN_MAX else ""
    return ", ".join(map(shown, value[:_SHOWN_MAX])) + more
