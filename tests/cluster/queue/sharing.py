"""What the tests of groups across nodes share: one node's part in a group, and its clients."""

from poe.broker.groups.membership import MemberInfo
from poe.broker.requests.groups import GroupRequest
from poe.cluster.batch import Batch
from poe.cluster.frames import ShareFrame, decode, encode
from poe.cluster.identity import StreamId
from poe.cluster.queue.copies import Copies
from poe.cluster.queue.effects import Answer
from poe.cluster.queue.group_share import GroupShare
from poe.cluster.queue_record import GroupRecord
from poe.errors import PoeError
from poe.protocol.leases import Done, Failed, LeaseRequest
from poe.storage.formats.record import decode_records
from tests.cluster.queue.wired import node_ref, peer_of

SECOND = 1_000_000
START = 1_800_000_000_000_000
ME, OTHER = node_ref(1), node_ref(2)
MINE, ITS = StreamId(ME.id, 1), StreamId(OTHER.id, 1)
X, Y = b"x" * 16, b"y" * 16


class Node:
    """One node's part in a group, that holds what it is told to; pointers begin at 1."""

    def __init__(self, ref=ME, members=(X, Y), queue=b"jobs", group="workers", **options):
        self.ref = ref
        self.copies = Copies()
        self.now_us = START
        self.record = GroupRecord(queue, group, options, 5, ME.id)
        self.held = {}
        self.gone: set[object] = set()
        self.share = GroupShare(
            self.record, ref, self.copies, START, self.held_by, self.gone.__contains__
        )
        self.answers = {}
        self.tells = []
        self.others = []
        for member in members:
            self.join(member)

    def held_by(self, node, stream):
        return self.held.get((node, stream), ())

    def hold(self, stream, after, count, size=3):
        """Hold messages that are their pointers, and hand them out."""
        messages = [b"%0*d" % (size, after + number + 1) for number in range(count)]
        self.copies.add(stream, Batch.encode(messages, after, after + 1))
        self.share.arrived(stream, after, after + count, self.now_us)

    def ask(self, request, token="token"):
        self.share.serve(request, token, self.now_us)
        self.collect()
        return self.answers.pop(token, None)

    def collect(self):
        for effect in self.share.take_effects():
            if isinstance(effect, Answer):
                assert effect.token not in self.answers
                self.answers[effect.token] = effect.value
            else:
                self.others.append(effect)

    def join(self, member):
        return self.operate("group_join", info=MemberInfo(id=member))

    def operate(self, op, **arguments):
        answer = self.ask(GroupRequest(op, arguments))
        if isinstance(answer, PoeError):
            raise answer
        return answer

    def lease(self, member=X, limit=100, wait_s=0.0, token="token", **told):
        request = LeaseRequest("workers", member, limit, 1 << 20, wait_s, **told)
        answer = self.ask(request, token)
        if isinstance(answer, PoeError):
            raise answer
        return answer

    def take(self, member=X, limit=100):
        """Lease messages; return the lease and the pointers of what came."""
        leased = self.lease(member, limit)
        return leased.lease, pointers_of(leased)

    def done(self, lease, *ranges, member=X):
        said = [Done(lease.id, ranges or None)]
        return self.lease(member, 0, done=said).lease.lost

    def said(self, lease, verdict, member=X):
        said = [Failed(lease.id, lease.after, lease.last, verdict, 0.0, "no")]
        return self.lease(member, 0, failed=said).lease.lost

    def sleep(self, seconds):
        self.now_us += round(seconds * SECOND)
        self.share.expire(self.now_us)
        self.collect()

    def beat(self, *members):
        for member in members:
            self.operate("group_heartbeat", member=member, generation=0, owned=(), wait_s=1.0)


def pointers_of(leased):
    """Return the pointers of what came, and see that the messages are theirs."""
    if leased.found is None:
        return []
    records = decode_records(leased.found.records)
    assert [int(message) for _, message in records] == [pointer for pointer, _ in records]
    assert len(records) == leased.found.count == len(leased.found.entries) // 12
    return [pointer for pointer, _ in records]


class Sharers:
    """Several nodes' parts in one group; what one tells is heard at once, unless it is cut off.

    Each has the members that it is said to have: X, Y … at the first, none elsewhere, if nothing is
    said. What is known is told to all by `gossip` alone.
    """

    def __init__(self, *members, **options):
        refs = [node_ref(number + 1) for number in range(len(members))]
        self.nodes = [Node(ref, each, **options) for ref, each in zip(refs, members, strict=True)]
        self.lost = set()
        self.told = []
        for one in self.nodes:
            for other in self.nodes:
                if one is not other:
                    one.share.peer_up(peer_of(other.ref), START)
        self.settle()

    def __getitem__(self, number):
        return self.nodes[number]

    def settle(self):
        """Have heard what is told, and what that leads to."""
        while any(self._deliver(node) for node in self.nodes):
            pass

    def _deliver(self, node):
        node.collect()
        told, node.others = node.others, []
        for each in told:
            assert isinstance(each.frame, ShareFrame)
            self.told.append((node.ref, each.node, each.frame))
            if (node.ref, each.node) not in self.lost:
                [there] = [one for one in self.nodes if one.ref == each.node]
                heard = decode(encode(each.frame))
                assert isinstance(heard, ShareFrame)
                there.share.hear(node.ref, heard, there.now_us)
        return bool(told)

    def gossip(self):
        """Have all nodes learn what is news."""
        for node in self.nodes:
            for known in node.share.knowledge.take_news():
                for other in self.nodes:
                    if other is not node and (node.ref, other.ref) not in self.lost:
                        other.share.learn(known, other.now_us)
        self.settle()

    def part(self, one, other):
        """Have two nodes lose sight of each other."""
        refs = self[one].ref, self[other].ref
        self.lost |= {refs, refs[::-1]}
        self[one].share.peer_down(refs[1], self[one].now_us)
        self[other].share.peer_down(refs[0], self[other].now_us)
        self.settle()

    def heal(self, one, other):
        refs = self[one].ref, self[other].ref
        self.lost -= {refs, refs[::-1]}
        self[one].share.peer_up(peer_of(refs[1]), self[one].now_us)
        self[other].share.peer_up(peer_of(refs[0]), self[other].now_us)
        self.settle()

    def sleep(self, seconds, step_s=0.05):
        for _ in range(round(seconds / step_s)):
            for node in self.nodes:
                node.sleep(step_s)
            self.settle()

    def frames(self, kind):
        """Return the frames of a kind that were told since the last time."""
        found = [
            (sender, node, frame) for sender, node, frame in self.told if isinstance(frame, kind)
        ]
        self.told = []
        return found
