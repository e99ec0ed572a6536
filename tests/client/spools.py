"""What the tests of the spool share: batches that are unlike each other, and ways to empty one."""

from poe.client.producer.transport import OutgoingBatch
from poe.protocol import PutId

LIVE = b"live producer id"


def batch_of(number, topic=b"t", partition=0, put_id=None, count=2):
    messages = [b"%d:%d" % (number, each) for each in range(count)]
    return OutgoingBatch(topic, partition, messages, put_id, sum(map(len, messages)))


def batches(count, first=0):
    return [batch_of(number) for number in range(first, first + count)]


def live(sequence, epoch=0, **arguments):
    """A batch that a producer may have sent already."""
    return batch_of(sequence, put_id=PutId(LIVE, epoch, sequence), **arguments)


def fill(spool, count, first=0):
    return [spool.append(batch).address for batch in batches(count, first)]


def take(spool):
    """Take the next batch, which is there."""
    spooled = spool.take()
    assert spooled is not None
    return spooled


def take_all(spool):
    """Take all there is, in order, without being done with any of it."""
    return list(iter(spool.take, None))


def sequence_of(spooled):
    return spooled.batch.put_id.sequence


def messages_of(spooled):
    return [message for each in spooled for message in each.batch.messages]


def messages_in(some):
    return [message for batch in some for message in batch.messages]


def empty(spool):
    """Deliver all there is, and return its messages."""
    found = []
    while (spooled := spool.take()) is not None:
        found += spooled.batch.messages
        spool.done(spooled)
    return found
