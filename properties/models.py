"""What a node must look like from outside: plain lists, no segments, no files, no actors."""

Record = tuple[int, bytes]


class NodeModel:
    """Topics as lists of (pointer, message), oldest first; pointers rise strictly, for ever.

    `floors` remembers the newest pointer of each topic that was ever given out: what was deleted
    or lost must not come back, nor its pointers.
    """

    def __init__(self):
        self.topics: dict[bytes, list[Record]] = {}
        self.floors: dict[bytes, int] = {}

    def put(self, topic: bytes, messages: list[bytes], last_pointer: int):
        """Take an acknowledged batch: its pointers are consecutive and behind all others."""
        first = last_pointer - len(messages) + 1
        assert first > self.floors.get(topic, 0), (topic, first, self.floors)
        self.floors[topic] = last_pointer
        records = self.topics.setdefault(topic, [])
        records += zip(range(first, last_pointer + 1), messages, strict=True)

    def read(self, topic: bytes, pointer: int, limit: int) -> list[Record]:
        followers = [r for r in self.topics.get(topic, []) if r[0] > pointer]
        return followers[:limit]

    def next(self, topic: bytes, pointer: int) -> Record | None:
        return next(iter(self.read(topic, pointer, 1)), None)

    def drop_before(self, topic: bytes, pointer: int) -> list[Record]:
        """Forget what is older than a pointer, and tell what that was."""
        dropped = [r for r in self.topics[topic] if r[0] < pointer]
        self.topics[topic] = self.topics[topic][len(dropped) :]
        return dropped

    def place(self, topic: bytes, number: int, step: int) -> int:
        """Turn two numbers into a pointer at, just before or just behind some message."""
        records = self.topics.get(topic)
        if not records:
            return max(0, step)
        return max(0, records[number % len(records)][0] + step)
