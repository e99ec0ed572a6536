"""Ways to break the groups of replicated topics on purpose; otherwise as `mutants.py`."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Literal, get_args

from poe.broker.appendix.message import Put
from poe.broker.coordinator import fenced_log, log_coordination
from poe.broker.groups.ordered import Ordered
from poe.broker.groups.shared_image import SharedImage
from poe.broker.registry.log_groups_table import LOG_GROUPS_TOPIC
from poe.broker.requests.log_groups import GROUPS_OF_LOG
from poe.cluster.log.log_groups import LogGroups
from poe.errors import NoQuorum, PoeError
from poe.protocol import PutId

LogGroupMutant = Literal[
    "log-groups-unfenced",
    "log-groups-stale",
    "log-groups-doubt-is-refusal",
    "log-groups-ahead",
    "log-groups-leave-out",
    "log-groups-claim-once",
]


def _unfenced(patch: Any) -> None:
    """Put onto the log as anybody does."""

    def put(messages: Any, _: Any) -> Put:
        return Put(messages)

    patch(fenced_log, "Put", put)


def _stale(patch: Any) -> None:
    """Answer what was read without a look whether this node still coordinates."""

    async def believe(*_: Any) -> None:
        pass

    patch(log_coordination, "confirm", believe)


def _doubt_is_refusal(patch: Any) -> None:
    """Take a put for refused where nobody knows, and give its number to another one."""

    async def put_once(self: Any, batch: Any) -> None:
        began_s = self.monotonic_s()
        replica = (self._routes.replicas or {}).get(LOG_GROUPS_TOPIC)
        put = Put(batch.messages, PutId(self._producer, 0, batch.number))
        try:
            if replica is None:
                raise NoQuorum(GROUPS_OF_LOG)
            pointer = await self.call(replica, put, timeout_s=None)
        except PoeError as error:
            self.cast(self._writer, error)
        else:
            self.cast(self._writer, fenced_log._Stored(pointer, began_s))

    patch(fenced_log._Putter, "handle_cast", put_once)


def _ahead(patch: Any) -> None:
    """Have who coordinates next begin ahead of where a group was."""
    restart = Ordered.restart

    def begin_ahead(self: Any, now_us: int, *, is_paused: bool) -> None:
        restart(self, now_us, is_paused=is_paused)
        self._positions = {unit: (at + 1, note) for unit, (at, note) in self._positions.items()}

    patch(Ordered, "restart", begin_ahead)


def _leave_out(patch: Any) -> None:
    """Hand out to nobody again what was held, or has failed, when another node coordinates."""
    gaps = SharedImage.gaps

    def without(self: Any) -> Any:
        for name, unit, _ in gaps(self):
            yield name, SimpleNamespace(progress=unit.progress, failures=()), ()

    patch(SharedImage, "gaps", without)


def _claim_once(patch: Any) -> None:
    """Claim nothing that anybody has claimed before."""
    claim = LogGroups._try_to_claim

    def first(self: Any) -> None:
        if self._claim is None:
            claim(self)

    patch(LogGroups, "_try_to_claim", first)


LOG_GROUP_MUTANTS: dict[str, Callable[[Any], None]] = {
    "log-groups-unfenced": _unfenced,
    "log-groups-stale": _stale,
    "log-groups-doubt-is-refusal": _doubt_is_refusal,
    "log-groups-ahead": _ahead,
    "log-groups-leave-out": _leave_out,
    "log-groups-claim-once": _claim_once,
}
assert set(LOG_GROUP_MUTANTS) == set(get_args(LogGroupMutant))
