"""One connection to the engine: the only module that knows `nats-py`.

A connection is not mended: when it is lost another one is made, from which all begins anew. So
there is one way to get anywhere, and no state of a library's to be trusted.

What comes is handed to whoever waits for it within the loop that the connection lives in. There is
one subscription for all answers; its subjects end with a number.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Any, Final, TypeVar

from poe.cluster.log.nats_frames import Frames, Message, status_of
from poe.cluster.log.nats_target import Login, NatsTarget
from poe.errors import LogEngineMissing

try:
    from nats.aio.client import Client
    from nats.aio.subscription import Subscription
    from nats.errors import Error, MaxPayloadError, NoServersError, ProtocolError
    from nats.protocol.parser import Parser
except ImportError as error:
    what = "the package nats-py"
    raise LogEngineMissing(what) from error

logger = logging.getLogger("poe.cluster")
# It writes of each connection that it loses, with a traceback; the engine tells of it once.
logging.getLogger("nats").setLevel(logging.CRITICAL)

_CONNECT_S: Final = 5.0
_CLOSE_S: Final = 1.0
_PING_S: Final = 5
"""Two of them without an answer, and the connection is lost."""
_NOBODY: Final = b"503"

Heard = Callable[[Message], None]
_T = TypeVar("_T")


class LinkLost(Exception):
    """The connection is gone, or never was there; what was sent may have arrived."""


class NoResponders(Exception):
    """Nobody listens there: what was sent has arrived nowhere."""


class TooLarge(Exception):
    """The engine takes no message of that size."""


class Link:
    """A connection, from `connect` to `closed`."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.why = "it was closed"
        self._client = client = _Client(self._end)
        self._ears: dict[int, Heard] = {}
        # What it calls with all that comes. Of nats-py's own way to hand on messages nothing is
        # used: it takes several times as long as all else that is done with an entry.
        client._ps = _QuickParser(client, self._ears)  # noqa: SLF001
        self._handlers: dict[int, Heard] = {}
        self._numbers = count(1)
        self._prefix = ""

    @classmethod
    async def connect(cls, target: NatsTarget, url: str, login: Login) -> "Link":
        """Return a connection to one of the servers of a target.

        Raises:
            LinkLost: it does not listen, or does not let in.
        """
        link = cls()
        try:
            await asyncio.wait_for(link._connect(target, url, login), _CONNECT_S)
        except BaseException as error:
            with contextlib.suppress(Exception):
                await link.close()
            if not isinstance(error, Exception):
                raise
            if "authorization" in f"{error} {link.why}".lower():
                msg = f"{url} does not let this node in"
                raise LinkLost(msg) from error
            why = link.why if isinstance(error, NoServersError) else str(error)
            msg = f"{url}: {why or type(error).__name__}"
            raise LinkLost(msg) from error
        return link

    async def _connect(self, target: NatsTarget, url: str, login: Login) -> None:
        self.why = "it does not answer"
        given: dict[str, Any] = {"user": login.user, "password": login.password}
        if login.token is not None:
            given = {"token": login.token}
        if login.credentials is not None:
            given = {"user_credentials": str(login.credentials)}
        await self._client.connect(
            servers=[url],
            error_cb=self._on_error,
            name="poe",
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=int(_CONNECT_S),
            ping_interval=_PING_S,
            max_outstanding_pings=2,
            tls=target.tls if url.startswith("tls:") else None,
            **given,
        )
        self._prefix = self._client.new_inbox() + "."
        await self.subscribe(self._prefix + "*", self._dispatch)

    # ---- what the server has said of itself -----------------------------------------------------

    @property
    def info(self) -> dict[str, Any]:
        """What it said as it was connected."""
        return self._client._server_info  # noqa: SLF001 - nats-py has no other way to its name

    @property
    def max_payload(self) -> int:
        """The largest message that it takes."""
        return self._client.max_payload

    # ---- what is said and heard -----------------------------------------------------------------

    async def subscribe(self, subject: str, heard: Heard) -> None:
        """Hear what is said on a subject, as long as the connection is there.

        Raises:
            LinkLost: the connection is gone, or the server does not answer.
        """
        await self._subscribe(subject, heard)
        try:
            await _heeding(self._client.flush(_PING_S))
        except (Error, OSError, AttributeError) as error:
            raise LinkLost(self.why) from error

    @contextlib.asynccontextmanager
    async def listening(self, heard: Heard) -> AsyncIterator[str]:
        """Hear what is sent to a subject of its own, within the block.

        What a consumer delivers comes there under the subject that it was published to.

        Raises:
            LinkLost: the connection is gone.
        """
        inbox = self._client.new_inbox()
        subscription = await self._subscribe(inbox, heard)
        try:
            yield inbox
        finally:
            self._ears.pop(subscription._id, None)  # noqa: SLF001 - as below
            with contextlib.suppress(Error, OSError, AttributeError):
                await _heeding(subscription.unsubscribe())

    async def _subscribe(self, subject: str, heard: Heard) -> Subscription:
        try:
            subscription = await _heeding(self._client.subscribe(subject))
        except (Error, OSError, AttributeError) as error:
            raise LinkLost(self.why) from error
        self._ears[subscription._id] = heard  # noqa: SLF001 - by which the server calls it
        return subscription

    def expect(self, heard: Heard) -> tuple[int, str]:
        """Return a number and a subject of the connection's own, and hear what is said on it."""
        number = next(self._numbers)
        self._handlers[number] = heard
        return number, f"{self._prefix}{number}"

    def forget(self, number: int) -> None:
        """Hear no more of a number."""
        self._handlers.pop(number, None)

    async def publish(
        self,
        subject: str,
        payload: bytes,
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Say something.

        Raises:
            LinkLost: the connection is gone.
            TooLarge: it is larger than the engine takes.
        """
        try:
            await _heeding(self._client.publish(subject, payload, reply, headers))
        except MaxPayloadError as error:
            raise TooLarge from error
        except (Error, OSError, AttributeError) as error:
            raise LinkLost(self.why) from error

    async def request(
        self,
        subject: str,
        payload: bytes,
        deadline_s: float,
        headers: dict[str, str] | None = None,
    ) -> bytes:
        """Say something that is answered, and return the answer.

        Raises:
            TimeoutError: it is not.
            NoResponders: nobody listens.
            LinkLost: the connection is gone.
            TooLarge: it is larger than the engine takes.
        """
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def take(message: Message) -> None:
            if answer.done():
                return
            if status_of(message.headers) == _NOBODY and not message.payload:
                answer.set_exception(NoResponders())
            else:
                answer.set_result(message.payload)

        number, reply = self.expect(take)
        lost: asyncio.Future[Any] = asyncio.ensure_future(self.closed.wait())
        try:
            async with asyncio.timeout(deadline_s):
                await self.publish(subject, payload, reply, headers)
                await asyncio.wait({answer, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise LinkLost(self.why)
            return bytes(answer.result())
        finally:
            lost.cancel()
            answer.cancel()
            self.forget(number)

    async def ask_all(self, subject: str, wait_s: float) -> list[bytes]:
        """Say nothing to all who listen, and return what they answer within a time.

        Raises:
            LinkLost: the connection is gone.
        """
        answers: list[bytes] = []

        def take(message: Message) -> None:
            if not status_of(message.headers):
                answers.append(message.payload)

        number, reply = self.expect(take)
        try:
            await self.publish(subject, b"", reply)
            await asyncio.sleep(wait_s)
        finally:
            self.forget(number)
        return answers

    async def ask(self, subject: str, question: Any, deadline_s: float) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Do the same in JSON.

        Raises:
            ValueError: the answer is none.
        """
        payload = b"" if question is None else json.dumps(question).encode()
        answer = json.loads(await self.request(subject, payload, deadline_s))
        if not isinstance(answer, dict):
            msg = "no object"
            raise ValueError(msg)  # noqa: TRY004 - as of what is no JSON
        return answer

    async def close(self) -> None:
        """Leave.

        For a moment alone: nats-py waits for the end of a connection for ever where its handshake
        has failed, as it does when a server does not take the node's certificate.
        """
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CLOSE_S):
                await self._client.close()
        self._client.abort()
        self._end()

    # ---- what nats-py calls ---------------------------------------------------------------------

    def _dispatch(self, message: Message) -> None:
        handler = self._handlers.get(int(message.subject[len(self._prefix) :]))
        if handler is not None:
            handler(message)

    async def _on_error(self, error: Exception) -> None:
        self.why = str(error) or type(error).__name__

    def _end(self) -> None:
        self.closed.set()
        self._handlers.clear()


_FIRST_WORDS: Final[Callable[[Client], bytes]] = Client._connect_command  # noqa: SLF001
"""nats-py's own; of a version that has none nothing would notice what says them without TLS."""


class _Client(Client):
    """Tells at once that a connection is over, and says nothing without TLS where that is wanted.

    Of itself nats-py waits before, without an end, until a server has read what was said to it; and
    it speaks TLS only where the server asks for it, as nobody does who is in between.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        super().__init__()
        self._end = end

    def _connect_command(self) -> bytes:
        if self.options.get("tls") is not None and not self._server_info.get("tls_required"):
            msg = "it asks for no TLS, and is told nothing without; use nats:// if that is meant"
            raise Error(msg)
        return _FIRST_WORDS(self)

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002 - nats-py's own
        self._end()
        with contextlib.suppress(OSError):  # it is over without the rest as well
            await super()._close(status, do_cbs)

    def abort(self) -> None:
        """Let go of what the server has not read."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()


class _QuickParser(Parser):
    """Hands messages on at once; all else is left to nats-py."""

    def __init__(self, client: Client, ears: dict[int, Heard]) -> None:
        super().__init__(client)
        self._ears = ears

    def reset(self) -> None:
        """Begin anew."""
        super().reset()
        self._frames = Frames()

    async def parse(self, data: bytes = b"") -> None:
        """Take what has come.

        Raises:
            ProtocolError: it is nothing of the protocol.
        """
        try:
            for frame in self._frames.feed(data):
                if isinstance(frame, bytes):
                    await super().parse(frame)
                    continue
                heard = self._ears.get(frame.sid)
                if heard is not None:
                    _hand_on(heard, frame)
        except ValueError as error:
            raise ProtocolError from error


async def _heeding(said: Awaitable[_T]) -> _T:
    """Await something of nats-py, which goes on when it is cancelled while the socket is full."""
    task = asyncio.current_task()
    assert task is not None
    cancelled_count = task.cancelling()
    result = await said
    if task.cancelling() > cancelled_count:
        raise asyncio.CancelledError
    return result


def _hand_on(heard: Heard, message: Message) -> None:
    """Have a message heard: no failure of who hears it is one of the connection."""
    try:
        heard(message)
    except Exception:
        logger.exception("a message of the engine was not understood")
