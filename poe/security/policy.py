"""Who may do what: grants in, yes or no out; pure.

Grants only allow: what no grant names is not allowed, and none takes away what another gives. Names
are bytes and match exactly or by their beginning; nothing is folded, and nothing is a pattern.
A decision depends on the grants and the name alone, never on what there is: so the answer for a
topic that does not exist is that for one that does.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from poe.errors import OptionError
from poe.errors.root import shown
from poe.security.names import ADMINISTRATOR, EVERYBODY, USER_NAMES, is_user_name
from poe.topic_properties import partition_of

TOPIC: Final = "topic"
GROUP: Final = "group"
NODE: Final = "node"

NODE_OPERATIONS: Final = ("admin", "authorize")
"""They concern the node, and take no names."""

OPERATIONS: Final = ("read", "write", "create", "delete", "describe", *NODE_OPERATIONS)

_NODE_NAME = b""
_RESERVED = b"poe."
_IMPLY_DESCRIBE = frozenset({"read", "write"})
_OPERATIONS = f"some of {', '.join(OPERATIONS)}"
_PRINCIPALS = f'names of users ({USER_NAMES}), or "*"'


def _is_principal(name: object) -> bool:
    return name == EVERYBODY or is_user_name(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Whoever is in `principals` may do the `operations` with what is named.

    Raises:
        OptionError: on construction, naming the field and what is allowed.
    """

    principals: tuple[str, ...]
    """Names of users; "*": whoever has authenticated."""

    operations: tuple[str, ...]
    """Either some of read, write, create, delete, describe, with names; or some of admin,
    authorize, without."""

    topics: tuple[bytes, ...] = ()
    """Topics, each with all that are its partitions by their names."""

    prefixes: tuple[bytes, ...] = ()
    """Beginnings of topics; an empty one covers all but the node's own (`poe.…`), which take a
    prefix that begins like them."""

    groups: tuple[bytes, ...] = ()
    group_prefixes: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a grant that would do nothing, or seems to do more than it does."""
        for key, values, is_allowed, allowed in (
            ("principals", self.principals, _is_principal, _PRINCIPALS),
            ("operations", self.operations, OPERATIONS.__contains__, _OPERATIONS),
        ):
            wrong = [each for each in values if not is_allowed(each)]
            if wrong or not values:
                raise OptionError(key, wrong[0] if wrong else [], allowed)
        for key, names in (("topics", self.topics), ("groups", self.groups)):
            if b"" in names:
                raise OptionError(key, "", 'names; for all, an empty prefix: [""]')
        has_names = any((self.topics, self.prefixes, self.groups, self.group_prefixes))
        of_node = set(NODE_OPERATIONS) & set(self.operations)
        if of_node and (has_names or len(of_node) < len(set(self.operations))):
            raise OptionError("operations", min(of_node), "it in a grant of its own, without names")
        if not of_node and not has_names:
            raise OptionError("topics", [], "topics, prefixes, groups or group_prefixes")


class Decision(NamedTuple):
    """Whether something is allowed, and why."""

    allowed: bool
    grant: int | None
    """Place of the first grant that allows it, from 0; None: none does, or none is needed."""

    sentence: str


@dataclass(slots=True)
class _Names:
    """What one principal may do one operation with, of one kind."""

    literals: set[bytes] = field(default_factory=set)
    prefixes: tuple[bytes, ...] = ()

    def cover(self, kind: str, name: bytes) -> bool:
        if kind != TOPIC:
            return name in self.literals or name.startswith(self.prefixes)
        part = partition_of(name)
        if name in self.literals or (part is not None and part[0] in self.literals):
            return True
        prefixes = self.prefixes
        if name.startswith(_RESERVED):
            prefixes = tuple(each for each in prefixes if each.startswith(_RESERVED))
        return name.startswith(prefixes)


class Policy:
    """All grants, arranged so that a decision looks at those alone that could allow it.

    It never changes; other grants are another policy.
    """

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self.grants = tuple(grants)
        self._names: dict[tuple[str, str, str], _Names] = {}
        for grant in self.grants:
            for principal in grant.principals:
                self._add(principal, grant)

    def may(self, principal: str, operation: str, kind: str, name: bytes = _NODE_NAME) -> bool:
        """Return whether a principal may do an operation.

        Args:
            principal: a name that has been authenticated.
            operation: one of `OPERATIONS`; another is never allowed.
            kind: `TOPIC`, `GROUP` or `NODE`; another is never allowed.
            name: of the topic or group, which need not exist.
        """
        if principal == ADMINISTRATOR:
            return True
        for who in (principal, EVERYBODY):
            names = self._names.get((who, operation, kind))
            if names is not None and names.cover(kind, name):
                return True
        return False

    def explain(
        self, principal: str, operation: str, kind: str, name: bytes = _NODE_NAME
    ) -> Decision:
        """Return the same decision with what it rests on, for people."""
        what = f"{operation} {resource_text(kind, name)}"
        if principal == ADMINISTRATOR:
            return Decision(True, None, f"{principal} may {what}: the local administrator")
        for number, grant in enumerate(self.grants):
            if Policy([grant]).may(principal, operation, kind, name):
                return Decision(True, number, f"{principal} may {what}: by grant {number + 1}")
        return Decision(False, None, f"{principal} may not {what}: no grant allows it")

    def _add(self, principal: str, grant: Grant) -> None:
        operations = set(grant.operations)
        if operations & _IMPLY_DESCRIBE:
            operations.add("describe")
        for operation in operations:
            for kind, literals, prefixes in _named(grant, operation):
                names = self._names.setdefault((principal, operation, kind), _Names())
                names.literals.update(literals)
                names.prefixes += prefixes


def _named(grant: Grant, operation: str) -> list[tuple[str, tuple[bytes, ...], tuple[bytes, ...]]]:
    """Return of which kinds, and with which names and beginnings, a grant allows an operation."""
    if operation in NODE_OPERATIONS:
        return [(NODE, (_NODE_NAME,), ())]
    return [
        (TOPIC, grant.topics, grant.prefixes),
        (GROUP, grant.groups, grant.group_prefixes),
    ]


def resource_text(kind: str, name: bytes) -> str:
    """Return what an operation is done with, as `NotAuthorized` and people name it."""
    return "the node" if kind == NODE else f"{kind} {shown(name)}"
