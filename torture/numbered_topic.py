"""A topic, and which message has which ordinal: in a store that is served, ended and damaged.

Each message is another one, so that whoever has an ordinal is known for ever. What does not hold is
an `AssertionError`.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from random import Random
from typing import Literal, get_args

from poe.errors import CorruptRecord
from poe.storage import Segment, Store, decode_records
from poe.storage.files import FileSlice
from poe.storage.formats.hashed import FILE_HEADER_BYTES
from poe.storage.formats.sum_file import SUMS
from torture.layers.simulated_disk import SimulatedDisk
from torture.workload import START_US

Damage = Literal["data", "index", "data and index", "header", "sums", "sums lost", "end", "segment"]
"""What becomes of one segment of a store that is stopped: a byte of its data is changed, its index
is lost, or both, a byte of the header or of an entry of its sums is changed, they are lost, the end
of its data is, or all its files are."""
DAMAGES: tuple[Damage, ...] = get_args(Damage)

_LOSSES = frozenset({"end", "segment"})
_LOCAL = frozenset({"data", "index", "data and index", "sums"})
_TOPIC = b"t"
_FOLDER = "topics/t"
_BYTES_MAX = 1 << 20


class NumberedTopic:
    """The topic on its disk; `given` has every message that was put, by its ordinal.

    Always: what can be read has the ordinals that it was given. As long as nothing was damaged, the
    ordinals of what is there follow one another, and no message is put that leaves one out.
    """

    def __init__(self) -> None:
        self._disk = SimulatedDisk()
        self._store = Store.open(self._disk.files())
        self.given: dict[int, bytes] = {}
        self._put_count = 0
        self._is_whole = self._may_lose_power = True
        self._has_lost = False
        self._damaged: set[str] = set()
        """Whose data is damaged, and who then loses its sums, serves what nobody has put."""

    @property
    def _segments(self) -> list[Segment]:
        return self._store.topics.get(_TOPIC, [])

    # ---- while it is served ---------------------------------------------------------------------

    def put(self, count: int, *, is_synced: bool = False) -> None:
        """Put a batch onto the writer, as the registry would find it."""
        writer = self._writer()
        first = writer.base + writer.count
        if self._is_whole and self.given:
            assert first == max(self.given) + 1, "an ordinal is left out, or given twice"
        messages = [b"%d" % (self._put_count + number) for number in range(count)]
        writer.append(messages, START_US)
        writer.flush()
        if is_synced:
            self._sync()
        self._put_count += count
        for ordinal, message in enumerate(messages, first):
            assert ordinal not in self.given, f"ordinal {ordinal} is given twice"
            self.given[ordinal] = message

    def rotate(self) -> None:
        """Go on in a new segment."""
        self._writer().seal()
        self._store.create_segment(_TOPIC, START_US)

    def sleep(self) -> None:
        """Have all segments hibernate."""
        for segment in self._segments:
            segment.hibernate()

    def remove(self, count: int) -> None:
        """Delete the oldest segments, as expiry and trim do; with all, the topic."""
        going = self._segments[:count]
        self._store.note_removal(_TOPIC, going)
        self._store.sync_notes()
        for segment in going:
            segment.seal()
            self._store.destroy_segment(_TOPIC, segment)
        # Of a topic some of whose files a power cut brings back nobody knows what it was.
        self._may_lose_power = self._may_lose_power and bool(self._segments)
        if self._segments:
            self._disk.files().sync_folder(_FOLDER)

    # ---- ends -----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop the server, and start it again."""
        self._store.close()
        self.kill()

    def kill(self) -> None:
        """Kill the server, and start it again."""
        self._disk.kill()
        self._store = Store.open(self._disk.files())

    def cut_power(self, random: Random, *, is_synced: bool) -> None:
        """Cut the power; what goes with it was never durable, and its ordinals are free again."""
        if not self._may_lose_power:
            self.kill()
            return
        if is_synced:
            self._sync()
        self._disk.cut_power(random)
        self._store = Store.open(self._disk.files())
        top = self._store.next_ordinal(_TOPIC)
        lost = [ordinal for ordinal in self.given if ordinal >= top]
        # Behind a segment that damage has cut, recovery takes the next one for torn.
        assert not (lost and is_synced and self._is_whole), "what was synced is gone"
        for ordinal in lost:
            del self.given[ordinal]
        # What was lost in front of a segment leaves its ordinals out.
        if not is_synced:
            self._is_whole, self._has_lost = False, True

    def damage(self, what: Damage, random: Random) -> None:
        """Stop the server, damage one segment, and start it again."""
        self._store.close()
        self._disk.kill()
        inodes = self._disk.memory.inodes
        paths = [path for path in inodes if path.startswith(_FOLDER) and path.endswith("_data")]
        held = sorted(path.removesuffix("_data") for path in paths if inodes[path].content)
        sound = [path for path in held if path not in self._damaged]
        if sound:
            path = random.choice(sound)
            # Beside a loss, nobody could tell where a segment begins, or how much is lost then.
            has_lost, self._has_lost = self._has_lost, self._has_lost or what in _LOSSES
            self._spoil(path, "index" if has_lost and what not in _LOCAL else what, random)
            self._damaged.add(path)
            self._is_whole = False
        self._store = Store.open(self._disk.files())

    def _spoil(self, path: str, what: Damage, random: Random) -> None:
        inodes = self._disk.memory.inodes

        def flip(suffix: str, start: int, end: int) -> None:
            inodes[path + suffix].content[random.randrange(start, end)] ^= 1 << random.randrange(8)

        if what.startswith("data"):
            flip("_data", 0, len(inodes[path + "_data"].content))
        if what.endswith("index"):
            del inodes[path + "_index"]
        match what:
            case "header":
                flip("_sum", 0, FILE_HEADER_BYTES)
            case "sums":
                end = len(inodes[path + "_sum"].content) - SUMS.size_bytes
                flip("_sum", FILE_HEADER_BYTES, max(end, FILE_HEADER_BYTES + 1))
            case "sums lost":
                del inodes[path + "_sum"]
            case "end":
                content = inodes[path + "_data"].content
                del content[random.randrange(len(content)) :]
            case "segment":
                for suffix in ("_data", "_index", "_sum"):
                    inodes.pop(path + suffix, None)

    # ---- what holds -----------------------------------------------------------------------------

    def check(self) -> None:
        """Read all that can be read."""
        segments = self._segments
        for before, segment in pairwise(segments):
            assert before.base + before.count <= segment.base, "segments overlap"
        ordinals = []
        for segment in segments:
            for ordinal, message in numbered(segment):
                assert self.given.get(ordinal) == message, f"ordinal {ordinal} is of another one"
                ordinals.append(ordinal)
        if self._is_whole and ordinals:
            assert ordinals == list(range(ordinals[0], max(self.given) + 1)), "some are left out"

    def _writer(self) -> Segment:
        segments = self._segments
        if segments:
            segments[-1].unseal()
        if not segments or segments[-1].failure:
            return self._store.create_segment(_TOPIC, START_US)
        return segments[-1]

    def _sync(self) -> None:
        for segment in self._segments:
            segment.sync()


def slices_around(
    segment: Segment, limit: int = 100, bytes_max: int = _BYTES_MAX
) -> Iterator[FileSlice]:
    """Yield all of a segment that can be read, going on behind what is damaged as the errors say.

    Raises:
        CorruptRecord: it does not say where to go on.
    """
    pointer = 0
    while True:
        try:
            slice_ = segment.read(pointer, limit, bytes_max)
        except CorruptRecord as error:
            if error.pointer is None or error.pointer <= pointer:
                raise
            pointer = error.pointer
            continue
        if slice_ is None:
            return
        yield slice_
        pointer = slice_.last_pointer


def numbered(segment: Segment) -> list[tuple[int, bytes]]:
    """Return (ordinal, message) of each record of a segment that can be read."""
    found: list[tuple[int, bytes]] = []
    for slice_ in slices_around(segment):
        records = decode_records(slice_.read())
        for ordinal, (each, message) in enumerate(records, segment.base + slice_.number):
            assert segment.ordinal_of(each - 1) == ordinal
            assert segment.pointer_at(ordinal) == each
            found.append((ordinal, message))
    return found


def steps(random: Random) -> list[Callable[[NumberedTopic], None]]:
    """Choose one life of a topic: what happens to it, in order."""
    kinds: list[Callable[[NumberedTopic], None]] = [
        lambda topic: topic.put(random.randint(1, 5), is_synced=random.random() < 0.5),
        lambda topic: topic.put(1),
        NumberedTopic.rotate,
        NumberedTopic.sleep,
        lambda topic: topic.remove(random.randint(1, 3)),
        NumberedTopic.stop,
        NumberedTopic.kill,
        lambda topic: topic.cut_power(random, is_synced=random.random() < 0.7),
        lambda topic: topic.damage(random.choice(DAMAGES), random),
    ]
    return random.choices(kinds, weights=[6, 2, 5, 1, 1, 2, 2, 1, 1], k=random.randint(10, 40))
