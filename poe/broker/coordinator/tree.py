"""The supervisors of groups, as child specs; a group that crashes is started when it is asked for.

Its children are temporary: the state lies in the log, and whoever asks for the group next has it
started. So one that crashes again and again costs those who ask for it, and nobody else.
"""

from poe.broker.coordinator.delayer import Delayer
from poe.broker.coordinator.group import Group
from poe.broker.coordinator.registry import GROUP_SUP, GroupParts, GroupRegistry
from poe.broker.requests.delayed import DELAYER
from poe.broker.requests.groups import GROUPS
from poe.supervision import (
    ChildSpec,
    Restart,
    Strategy,
    SupervisorFlags,
    dynamic_supervisor,
    supervisor_spec,
)

GROUPS_SUP = "groups_sup"


def groups_spec(parts: GroupParts) -> ChildSpec:
    """Return the spec of the supervisor of all groups."""
    template = ChildSpec(id="group", actor=Group, restart=Restart.TEMPORARY)
    children = [
        dynamic_supervisor(GROUP_SUP, template),
        ChildSpec(id=GROUPS, actor=GroupRegistry, args=(parts,), name=GROUPS),
        ChildSpec(id=DELAYER, actor=Delayer, args=(parts,), name=DELAYER),
    ]
    return supervisor_spec(GROUPS_SUP, SupervisorFlags(strategy=Strategy.ONE_FOR_ONE), children)
