"""What a group has given up: put back where it was, or let go.

Letters stay in the dead letter topic; the group GROUP.redrive knows which were dealt with. A queue
across nodes lets them go, once no other group wants them.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from poe.client.consumer.consumer import Consumer
from poe.client.consumer.source import Received
from poe.client.group.dead_letter import DeadLetter
from poe.client.group.queue import Queue
from poe.errors import InvalidEnvelope
from poe.protocol import Socket
from poe.protocol.envelope import encode

BATCH: Final = 1000
"""Letters that come again at most, where whoever puts them back is killed."""
_LETTERS_S: Final = 2.0
"""A queue that has handed out no letter for so long has none."""


def dead_letter_topic(group: str, options: Mapping[str, Any]) -> bytes:
    """Return the dead letter topic of a group by its options."""
    return os.fsencode(options["dead_letter_topic"] or f"{group}.dead")


def redriver(group: str) -> str:
    """Return the group that knows which letters of another one were dealt with."""
    return f"{group}.redrive"


def redrive(connection: Socket, url: str, group: str, entry: Mapping[str, Any]) -> int:
    """Put all that a group has given up back where it was; return how many messages.

    What it is at when it is killed, `BATCH` at most, is put back again the next time.

    Args:
        connection: to the server.
        url: of the same.
        group: whose letters.
        entry: `tls` and `credentials`, as a consumer takes them.
    """
    return _deal(connection, url, group, entry, partial(put_back, connection))


def discard(connection: Socket, url: str, group: str, entry: Mapping[str, Any]) -> int:
    """Have no letter of a group put back that is there now; return how many. As `redrive`."""
    return _deal(connection, url, group, entry, len)


def put_back(connection: Socket, letters: list[bytes]) -> int:
    """Put messages back where they were; return how many."""
    found = []
    for each in letters:
        with suppress(InvalidEnvelope):
            found.append(DeadLetter.of(each))
    count = 0
    for origin, some in groupby(found, attrgetter("origin")):
        messages = [each.message for each in some if each.message]
        if origin and messages:
            connection.write(origin, messages)
            count += len(messages)
    return count


def _deal(
    connection: Socket,
    url: str,
    group: str,
    entry: Mapping[str, Any],
    handle: Callable[[list[bytes]], int],
) -> int:
    count = 0
    topic = dead_letter_topic(group, connection.control("group", group=group)["options"])
    found = connection.find_topic(topic)
    if found is None:  # a group on it now would be in the way of one on a queue later
        return 0
    if found.queue is not None:
        with Queue(url, topic, group=redriver(group), **entry) as letters:
            while (job := letters.get(timeout_s=_LETTERS_S)) is not None:
                with job:
                    count += handle([job.value or b""])
        return count
    options = {**entry, "commit": "manual", "batch": BATCH, "on_corrupt": "skip"}
    with Consumer(url, topic, group=redriver(group), **options) as consumer:
        for batch in consumer.batches():
            count += handle(list(map(_letter, batch)))
            consumer.commit()
    return count


def _letter(received: Received) -> bytes:
    """Return a letter as it is stored, whether its topic is known to hold envelopes or not."""
    if received.headers is None:
        return received.value or b""
    return encode(received.key, received.value, received.headers)
