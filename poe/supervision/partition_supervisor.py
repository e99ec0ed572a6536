"""A partition supervisor: several equal children, one of which answers for each key.

One process that everybody asks becomes the narrow place of a system. Here N children of one spec
share its work: a key always leads to the same child, found without asking anybody, and each child
is restarted alone. The children may be servers, or supervisors of dynamic children.

Source: Elixir `PartitionSupervisor`; differences: the number of partitions is given, not taken from
the schedulers, and a partition is found by its registered name.
"""

from dataclasses import dataclass, replace
from typing import Any

import xxhash

from poe.errors import InvalidChildSpec
from poe.errors.short_text import short_repr
from poe.supervision.child_spec import ChildSpec, Strategy, SupervisorFlags, is_int, is_name
from poe.supervision.supervisor import Supervisor

PartitionKey = int | str | bytes


@dataclass(frozen=True, slots=True)
class Partitions:
    """Finds the partition of a key; may be used anywhere, also where no actor system is."""

    name: str
    """Begins the registered names of all partitions: `<name>.0`, `<name>.1` and so on."""
    count: int

    def __post_init__(self) -> None:
        """Refuse what leads nowhere.

        Raises:
            InvalidChildSpec: there is no partition, or it would have no name.
        """
        if not is_name(self.name):
            msg = f"partitions: name is {self.name!r}; use a str that is not empty"
            raise InvalidChildSpec(msg, "name", self.name)
        if not is_int(self.count, 1):
            msg = f"partitions {self.name!r}: count is {self.count!r}; use an integer, 1 or more"
            raise InvalidChildSpec(msg, "count", self.count)

    def index(self, key: PartitionKey) -> int:
        """Return the number of a key's partition: the same in every process and on every machine.

        An int is taken modulo `count`, as in Elixir; text and bytes by their XXH3 hash.

        Raises:
            TypeError: the key is something else, whose hash could differ between processes.
        """
        if isinstance(key, int):
            return key % self.count
        if not isinstance(key, str | bytes):
            msg = f"partitions {self.name!r}: the key is {key!r}; use an int, str or bytes"
            raise TypeError(msg)
        data = key.encode() if isinstance(key, str) else key
        return xxhash.xxh3_64_intdigest(data) % self.count

    def find(self, key: PartitionKey) -> str:
        """Return the name of a key's partition, to be used wherever an actor's ref may be."""
        return f"{self.name}.{self.index(key)}"


class PartitionSupervisor(Supervisor):
    """Supervises `partitions.count` children of one spec, each under a name of its own.

    Start it with `(partitions, spec)` and, for another limit than three restarts in five seconds,
    `flags`. The ids of the children are their numbers.
    """

    def configure(
        self,
        partitions: Partitions,
        spec: ChildSpec,
        flags: SupervisorFlags | None = None,
    ) -> Any:  # noqa: ANN401 - flags and specs
        """Make a spec for each partition.

        Raises:
            InvalidChildSpec: the strategy is not one_for_one, so that partitions would not be
                restarted alone, or the spec has a name, or what is given is something else.
        """
        if (type(partitions), type(spec)) != (Partitions, ChildSpec):
            msg = (
                f"a partition supervisor is started with ({partitions!r}, {spec!r}); "
                "use (Partitions(...), ChildSpec(...))"
            )
            raise InvalidChildSpec(msg)
        if spec.name is not None:
            shown = short_repr(spec.id)
            msg = f"partition spec {shown}: name is {spec.name!r}; its children need None"
            raise InvalidChildSpec(msg, "name", spec.name)
        flags = flags or SupervisorFlags(intensity=3, period_s=5)
        if not isinstance(flags, SupervisorFlags):
            msg = f"a partition supervisor's flags are {flags!r}; use SupervisorFlags(...)"
            raise InvalidChildSpec(msg)
        if flags.strategy is not Strategy.ONE_FOR_ONE:
            msg = f"a partition supervisor's strategy is {flags.strategy}; use one_for_one"
            raise InvalidChildSpec(msg, "strategy", flags.strategy)
        return flags, [
            replace(spec, id=index, name=f"{partitions.name}.{index}")
            for index in range(partitions.count)
        ]
