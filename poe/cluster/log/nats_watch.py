"""Starts a node's `nats-server` anew where it stores nothing any more, though it runs.

A server whose disk was full once, or failed, keeps nothing from then on until it is started again:
the node would be a replica of nothing, and nobody would notice before the next one is lost.
"""

import asyncio
import logging
from typing import Final

from poe.actors import GenServer
from poe.cluster.log.nats_link import Link, LinkLost, NoResponders
from poe.cluster.log.nats_target import FindTarget, NatsTarget
from poe.errors import ChildStartFailed
from poe.supervision import restart_child, terminate_child

logger = logging.getLogger("poe.cluster")

LOOK_S: Final = 10.0
_ASK_S: Final = 2.0
_LOOK: Final = "look"


class NatsWatch(GenServer):
    """Looks now and then; a sibling of what it starts anew."""

    def init(self, servers: FindTarget, supervisor: str, child: str) -> None:
        """Begin; `child` of `supervisor` runs the server."""
        self._servers = servers
        self._place = supervisor, child
        self._is_ended = False
        """Whether it was ended, and is still to be started."""
        self.send_after(LOOK_S, _LOOK)

    async def handle_info(self, message: object) -> None:
        """Look, and look again later."""
        if message != _LOOK:
            super().handle_info(message)
            return
        target = await self.run_blocking(self._servers.target)  # it looks whose the port is
        if target is not None and await self.run_blocking(_is_disabled, target):
            logger.error("the engine of the replicated log stores nothing any more: its disk was "
                         "full, or fails; it is started anew")  # fmt: skip
            await terminate_child(self, *self._place)
            self._is_ended = True
        if self._is_ended:
            await self._start()
        self.send_after(LOOK_S, _LOOK)

    async def _start(self) -> None:
        """Start what was ended; its supervisor does not where it fails to start."""
        try:
            await restart_child(self, *self._place)
        except ChildStartFailed as error:
            logger.error("the engine of the replicated log does not start: %s", error)
        else:
            self._is_ended = False


def _is_disabled(target: NatsTarget) -> bool:
    """Return whether a server says that it does not store; one that says nothing may do so."""
    return asyncio.run(_asked(target))


async def _asked(target: NatsTarget) -> bool:
    if target.system is None:
        return False
    try:
        link = await Link.connect(target, target.urls[0], target.system)
    except LinkLost:
        return False
    try:
        me = link.info.get("server_id", "")
        answer = await link.ask(f"$SYS.REQ.SERVER.{me}.JSZ", {}, _ASK_S)
        return bool(answer["data"].get("disabled"))
    except (LinkLost, NoResponders, TimeoutError, ValueError, KeyError, AttributeError):
        return False
    finally:
        await link.close()
