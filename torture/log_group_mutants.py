"""Ways to break the groups of replicated topics on purpose; otherwise as `mutants.py`."""

from collections.abc import Callable
from typing import Any, Literal, get_args

from poe.broker.appendix.message import Put
from poe.broker.coordinator import fenced_log, log_coordination
from poe.broker.registry.log_groups_table import LOG_GROUPS_TOPIC
from poe.broker.requests.log_groups import GROUPS_OF_LOG
from poe.errors import NoQuorum, PoeError
from poe.protocol import PutId

LogGroupMutant = Literal["log-groups-unfenced", "log-groups-stale", "log-groups-doubt-is-refusal"]


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


LOG_GROUP_MUTANTS: dict[str, Callable[[Any], None]] = {
    "log-groups-unfenced": _unfenced,
    "log-groups-stale": _stale,
    "log-groups-doubt-is-refusal": _doubt_is_refusal,
}
assert set(LOG_GROUP_MUTANTS) == set(get_args(LogGroupMutant))
