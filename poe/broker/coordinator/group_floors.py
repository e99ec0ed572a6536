"""Tells who deletes old messages how far groups are with them, and of which topics they are.

It looks into the state of a group that runs, which its actor alone changes; that of another one is
made of the log when somebody asks for it. What cannot be told is 0: then nothing goes.
"""

from collections.abc import Mapping

from poe.broker.coordinator.group_log import GroupHistory
from poe.broker.groups.options import GroupDefinition
from poe.broker.groups.state import GroupState
from poe.broker.registry.routing_table import RoutingTable
from poe.errors import CorruptGroup


class GroupFloors:
    """The states of groups by name; only the registry of groups changes which there are."""

    __slots__ = ("_groups", "_routes", "_states")

    def __init__(self, routes: RoutingTable) -> None:
        self._routes = routes
        self._groups: Mapping[str, GroupHistory] | None = None
        self._states: dict[str, GroupState] = {}

    def know(self, groups: Mapping[str, GroupHistory]) -> None:
        """Take all groups, as they are from now on."""
        self._groups = groups

    def follow(self, state: GroupState) -> None:
        """Take the state that the actor of a group works with."""
        self._states[state.definition.name] = state

    def forget(self, group: str) -> None:
        """Note that a group is deleted."""
        self._states.pop(group, None)

    def may_know(self, group: str) -> bool:
        """Return whether there is a group of this name, as far as the log was read."""
        return self._groups is None or group in self._groups

    def floor(self, group: str, topic: bytes) -> int | None:
        """Return up to which pointer a group is done with a partition; see `UnreadFloor`."""
        if self._groups is None:
            return 0
        history = self._groups.get(group)
        if history is None:
            return None
        state = self._states.get(group)
        if state is None:
            try:
                state = self._states[group] = history.restore()
            except CorruptGroup:
                return 0
        floor = state.floor(topic)
        return 0 if floor is None and self._is_read_by(state.definition, topic) else floor

    def topics(self, group: str) -> tuple[bytes, ...]:
        """Return the topics of a group, and patterns of them; none of one that is not known.

        Of a group that runs it is always the same object.

        Raises:
            CorruptGroup: nobody knows them any more.
        """
        state = self._states.get(group)
        if state is not None:
            return state.definition.topics
        history = None if self._groups is None else self._groups.get(group)
        if history is not None:
            return history.topics()
        queues = self._routes.queues
        return () if queues is None else queues.topics(group)

    def _is_read_by(self, group: GroupDefinition, topic: bytes) -> bool:
        properties = self._routes.properties
        holder = None if properties is None else properties.holder(topic)
        names = {topic} if holder is None else {topic, holder.name}
        return any(map(group.reads, names))
