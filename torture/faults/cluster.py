"""Best-effort queues of a simulated cluster: every fault that nodes and networks have, at random.

A history is clients that put, take and acknowledge while nodes die, freeze, run full and lose sight
of each other. Then all is mended, what is left is done, and the rules of `torture/cluster_rules.py`
judge what was seen. Its seed repeats it.
"""

from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

from poe.broker.requests.groups import GroupRequest
from poe.cluster.queue.queue import BestEffortQueue
from poe.cluster.queue_record import GroupRecord, OnFull, QueueRecord
from poe.errors import PoeError
from poe.protocol.leases import VERDICTS
from poe.testing.simulated_fabric import SOME_DELAY, Faults
from torture.cluster_clients import Member, Producer
from torture.cluster_history import History
from torture.cluster_rules import AGREED_US, AT_MOST_ONCE, RESTORED_US, broken
from torture.scenario import Run, Trial
from torture.simulated_cluster import SECOND_US, Cluster, Node

_STEPS = 40
_QUEUE = b"jobs"
_NAME = _QUEUE.decode()
_LEASE_S = 5.0
_SESSION_S = 30.0
_BYTES_MAX = 1 << 20
_FEW_BYTES = 3000
_PAUSES_S = [0.0, 0.0, 0.002, 0.02, 0.1, 0.3, 1.0, 3.0]
_WEATHERS = [Faults(100, 50_000, 0.02, 0.05), Faults(100, 800_000, 0.2, 0.2)]
_UNITS_PER_S = 40
"""As slow as that, of frames that are not encoded, of which each is some six units long."""
_TAKE_S = 0.5
_LOOK_S = 25.0
_QUIET_S = 3 * _LOOK_S
"""When nothing has come for so long, nothing more will: copies are restored, leases over."""


def play(run: Run, *, is_persisted: bool = False) -> None:
    """Let each seed make up a history."""

    def judge(trial: Trial) -> None:
        trial.failures += broken(simulate(trial, is_persisted=is_persisted))

    run.each(judge)


def simulate(trial: Trial, *, is_persisted: bool = False) -> History:
    """Return the history of a cluster in trouble."""
    trouble = _Trouble(trial, is_persisted=is_persisted)
    trouble.play()
    history = History(trouble.cluster.events)
    trial.note(puts=len(history.of("put")), handed=len(history.of("handed")))
    return history


class _Trouble:
    """A cluster, its clients, and what happens to them."""

    def __init__(self, trial: Trial, *, is_persisted: bool) -> None:
        self.trial = trial
        random = self.random = trial.random
        count = random.choice([1, 2, 3, 3, 3, 3, 4, 5])
        self.cluster = Cluster(random, count, zones=random.choice([1, 2, count]))
        self.network = self.cluster.network
        self.copies = min(count, random.choice([1, 2, 2, 2, 3]))
        # A queue that must not drop anything, one that runs full, and one that drops then.
        policies: list[tuple[int, OnFull]] = [(_BYTES_MAX, "busy")] * 6
        policies += [(_FEW_BYTES, "busy"), (_FEW_BYTES, "drop-oldest")]
        bytes_max, on_full = random.choice(policies)
        self.record = QueueRecord(
            _QUEUE,
            self.copies,
            persist=is_persisted,
            bytes_max=bytes_max,
            on_full=on_full,
            created_us=self.cluster.now_us,
            created_by=self.cluster.nodes[0].ids[0],
        )
        self.producers = [Producer(self.cluster, self.record, number) for number in range(2)]
        self.members: list[Member] = []
        self.has_faults = random.random() < 0.9
        self.has_kills = random.random() < 0.7
        self.is_local = random.random() < 0.2
        """Whether all clients ask the first node."""
        self._groups_count = 0
        self._deleted: list[GroupRecord] = []
        self._mendings: dict[int, Callable[[], None]] = {}

    @property
    def serving(self) -> list[Node]:
        """The nodes that take requests."""
        return [each for each in self.cluster.nodes if each.is_serving]

    def play(self) -> None:
        """Do steps, and mend all."""
        self.begin()
        steps = {
            self.put: 24,
            self.take: 24,
            self.answer: 26,
            self.beat: 4,
            self.dies: 2,
            self.new_group: 1,
            self.delete_group: 1,
            self.pause: 1,
            self.reset: 1,
        }
        if self.has_faults:
            steps |= {self.cut: 3, self.freeze: 2, self.noise: 2, self.slow: 2, self.mend: 5}
            steps |= {self.crash: 2, self.jump: 1}
        if self.has_kills:
            steps |= {self.kill: 4, self.start: 4, self.forget: 1, self.copy_folder: 1}
            steps |= {self.rest: 1}
        chosen = self.random.choices(list(steps), list(steps.values()), k=_STEPS)
        for step in chosen:
            step()
            self.cluster.advance(self.random.choice(_PAUSES_S))
        self.end()

    def begin(self) -> None:
        """Start the nodes, and make the queue and a group."""
        for node in self.cluster.nodes:
            node.start()
        self.cluster.advance(1.0)
        record = self.record
        self.cluster.add(
            "queue",
            queue=_NAME,
            wanted=self.copies,
            made=record.messages_max,
            size_bytes=record.bytes_max,
        )
        self.cluster.nodes[0].make_queue(record)
        self.cluster.advance(1.0)
        self.make_group("g0")

    def make_group(self, name: str) -> None:
        """Make a group, and members of it."""
        nodes = [each for each in self.cluster.nodes if each.is_listening]
        if not nodes:
            return
        node = self.random.choice(nodes)
        delivery = AT_MOST_ONCE if self.random.random() < 0.2 else "at-least-once"
        options = {
            "delivery": delivery,
            "lease_s": _LEASE_S,
            "session_s": _SESSION_S,
            "retry_s": 0.5,
            "attempts_max": self.random.choice([2, 1000]),
        }
        record = GroupRecord(_QUEUE, name, options, self.cluster.now_us, node.ids[-1])
        self.cluster.add("group", node, queue=_NAME, group=name, state=delivery)
        node.make_queue(self.record).make_group(record)
        self.members += [Member(self.cluster, self.record, record) for _ in range(2)]

    # ---- what clients do ------------------------------------------------------------------------

    def node(self) -> Node | None:
        """Return a node that clients ask."""
        nodes = self.cluster.nodes[:1] if self.is_local else self.serving
        return self.random.choice(nodes) if nodes else None

    def put(self) -> None:
        """Put some messages."""
        node = self.node()
        if node is not None:
            count, size = self.random.choice([1, 1, 2, 5, 20]), self.random.choice([0, 30, 100])
            within_s = self.random.choice([0.05, 0.5, 2.0, 5.0])
            copies = self.random.choice([self.copies] * 5 + [1, self.copies + 1])
            self.random.choice(self.producers).put(node, count, size, copies, within_s)

    def take(self) -> None:
        """Have a member ask for messages; one that is none joins."""
        if not self.members:
            return
        member = self.random.choice(self.members)
        if member.node is not None:
            member.take(self.random.choice([1, 2, 8, 64]), self.random.choice([0.0, 0.0, 0.5, 3.0]))
        elif (node := self.node()) is not None:
            member.join(node)

    def answer(self) -> None:
        """Have a member say what became of what it holds."""
        holding = [each for each in self.members if each.held]
        if not holding:
            return
        member = self.random.choice(holding)
        held = self.random.choice(member.held)
        dice = self.random.random()
        if dice < 0.6:
            member.finish(held)
        elif dice < 0.85:
            begin = self.random.randrange(len(held.messages))
            member.finish_part(held, begin, self.random.randint(begin + 1, len(held.messages)))
        else:
            member.fail(held, self.random.choice(VERDICTS))

    def beat(self) -> None:
        """Have a member give signs of life."""
        if self.members:
            self.random.choice(self.members).beat()

    def dies(self) -> None:
        """Have a client die."""
        if self.members:
            self.random.choice(self.members).die()

    def new_group(self) -> None:
        """Make a second group."""
        if len(self.members) < 4:
            self._groups_count += 1
            self.make_group(f"g{self._groups_count}")

    def delete_group(self) -> None:
        """Delete the second group."""
        node = self.node()
        if len(self.members) < 4 or node is None or not node.is_listening:
            return
        group = self.members[-1].group
        for member in self.members[-2:]:
            member.die()
        del self.members[-2:]
        self.cluster.add("group", node, queue=_NAME, group=group.name, state="deleted")
        self._deleted.append(group)
        self.delete_again(node)

    def delete_again(self, node: Node) -> None:
        """Have deleted what was, of which nobody may know where the node was lost."""
        hosted = node.make_queue(self.record)
        for record in [each.deleted(node.now_us) for each in self._deleted]:
            hosted.do(partial(BestEffortQueue.make_group, record=record, now_us=node.now_us))

    def pause(self) -> None:
        """Pause a group, or have it go on."""
        self.look_after("group_pause" if self.random.random() < 0.5 else "group_resume")

    def look_after(self, op: str) -> None:
        """Have somebody ask a node to do something with the first group."""
        node = self.node()
        if node is None or not node.is_listening or not self.members:
            return
        hosted, group = node.make_queue(self.record), self.members[0].group
        hosted.make_group(group)
        self.cluster.add("pause", node, queue=_NAME, group=group.name, state=op)
        request = GroupRequest(op, {})
        hosted.ask(
            lambda queue, token: queue.serve(group.name, request, token, node.now_us),
            lambda _: None,
        )

    def reset(self) -> None:
        """Have the first group pass over all that a node holds.

        What is to be handed out once at most may have been left to others for good.
        """
        node = self.node()
        if node is None or not node.is_listening or not self.members:
            return
        hosted, group, cluster = node.make_queue(self.record), self.members[0].group, self.cluster
        if group.options["delivery"] == AT_MOST_ONCE:
            return
        hosted.make_group(group)
        messages = tuple(
            name
            for stream in hosted.copies.streams()
            for last in [max(end for _, end in hosted.copies.held(stream))]
            for name in cluster.named(stream, [(0, last)])
        )
        fields: dict[str, Any] = {"queue": _NAME, "group": group.name, "messages": messages}
        fields["op"] = cluster.next_op()
        cluster.add("ack", node, **fields)

        def answered(answer: object) -> None:
            if answer is not None:
                cluster.add("unheld" if isinstance(answer, PoeError) else "acked", node, **fields)

        request = GroupRequest(
            "group_reset", {"to": "newest", "units": (), "dry": False, "force": True}
        )
        hosted.ask(
            lambda queue, token: queue.serve(group.name, request, token, node.now_us), answered
        )

    # ---- what happens to nodes ------------------------------------------------------------------

    def fault(self, name: str, begin: Callable[[], None], end: Callable[[], None]) -> None:
        """Begin a fault, which `mend` ends, or the end of the history."""
        number = self.cluster.next_op()
        self.cluster.add("fault", op=number, text=name)
        begin()
        self._mendings[number] = end
        self.trial.note(faults=1)

    def mend(self) -> None:
        """End a fault."""
        if self._mendings:
            number = self.random.choice(list(self._mendings))
            self._mendings.pop(number)()
            self.cluster.add("heal", op=number)

    def cut(self) -> None:
        """Cut some links: one of them, in one direction or both, or all between two sides."""
        nodes, random, network = self.cluster.nodes, self.random, self.network
        pairs = list(permutations([each.name for each in nodes], 2))
        if not pairs:
            return
        chosen, is_one_way = [random.choice(pairs)], random.random() < 0.3
        if random.random() < 0.5:
            side = {each.name for each in nodes if random.random() < 0.5}
            chosen = [(one, other) for one, other in pairs if one in side and other not in side]

        def begin() -> None:
            for one, other in chosen:
                network.cut(one, other, one_way=is_one_way)

        def end() -> None:
            for one, other in chosen:
                network.heal(one, other)

        self.fault(f"cut {chosen}", begin, end)

    def freeze(self) -> None:
        """Stop a node for a while."""
        nodes = [each for each in self.cluster.nodes if each.is_running and not each.is_frozen]
        if nodes:
            name = self.random.choice(nodes).name

            def thaw() -> None:
                if self.network.is_frozen(name):
                    self.network.thaw(name)

            self.fault(f"freeze {name}", lambda: self.network.freeze(name), thaw)

    def noise(self) -> None:
        """Have frames lost, doubled and late for a while."""

        def begin() -> None:
            self.network.faults = self.random.choice(_WEATHERS)

        def end() -> None:
            self.network.faults = SOME_DELAY

        self.fault("noise", begin, end)

    def slow(self) -> None:
        """Have all that a node is sent come slowly."""
        node = self.random.choice(self.cluster.nodes)
        bytes_per_s = 20_000 if self.cluster.is_encoded else _UNITS_PER_S

        def limit(bytes_per_s: int | None) -> None:
            for other in self.cluster.nodes:
                if other is not node:
                    self.network.slow(other.name, node.name, bytes_per_s)

        self.fault(f"slow {node.name}", lambda: limit(bytes_per_s), lambda: limit(None))

    def crash(self) -> None:
        """Have the actor of a queue crash."""
        hosts = [each for each in self.serving if _QUEUE in each.hosted]
        if hosts:
            self.random.choice(hosts).hosted[_QUEUE].crash()

    def jump(self) -> None:
        """Set the clock of a node, which its next life sees."""
        node = self.random.choice(self.cluster.nodes)
        self.cluster.add("jump", node)
        node.next_skew_us = round(self.random.uniform(-60, 60) * SECOND_US)

    def kill(self) -> None:
        """Kill a node."""
        running = [each for each in self.cluster.nodes if each.is_running]
        if running:
            self.random.choice(running).kill(is_disk_lost=self.random.random() < 0.1)
            self.trial.note(kills=1)

    def start(self) -> None:
        """Start a node that has died."""
        down = [each for each in self.cluster.nodes if not each.is_running]
        if down:
            self.random.choice(down).start()

    def forget(self) -> None:
        """Have a node forgotten that is dead; it comes back with an empty folder."""
        down = [each for each in self.cluster.nodes if not each.is_running]
        nodes = [each for each in self.cluster.nodes if each.is_listening]
        if down and nodes:
            node = self.random.choice(down)
            if self.random.choice(nodes).forget(node.ids[-1]):
                self.cluster.add("forget", node)
                node.wipe()

    def copy_folder(self) -> None:
        """Start a node with a copy of another one's folder: the earlier one has to go."""
        if len(self.cluster.nodes) < 6:
            node = self.random.choice(self.cluster.nodes)
            self.cluster.add_node(node.zone, node).start()

    def rest(self) -> None:
        """Let nothing happen until what was lost is restored; then something may be lost again."""
        while self._mendings:
            self.mend()
        self.cluster.advance(RESTORED_US / SECOND_US + 1)
        if self.random.random() < 0.5:
            self.kill()

    # ---- the end --------------------------------------------------------------------------------

    def end(self) -> None:
        """Mend all, compare the nodes, and do what is left."""
        while self._mendings:
            self.mend()
        self.network.faults = SOME_DELAY
        for node in self.cluster.nodes:
            if node.is_fenced:
                node.kill(is_disk_lost=True)
                node.wipe()
            if not node.is_running:
                node.start()
            node.make_queue(self.record)
        for member in self.members:
            member.die()
        self.cluster.advance(5.0)
        self.serving[0].forget_the_dead()
        self.delete_again(self.serving[0])
        self.is_local = False
        self.look_after("group_resume")
        self.cluster.advance(1.0 + AGREED_US / SECOND_US)
        self.look_after("group_resume")
        self.compare(1)
        self.drain()
        self.cluster.advance(1.0 + AGREED_US / SECOND_US)
        self.compare(2)
        for node in self.serving:
            copies = node.hosted[_QUEUE].copies
            if self.members:
                kept = {"made": copies.messages_count, "size_bytes": copies.bytes_count}
                self.cluster.add("kept", node, queue=_NAME, **kept)

    def drain(self) -> None:
        """Have good members at all nodes do what is left."""
        groups = {each.group.name: each.group for each in self.members}.values()
        members = []
        for group in groups:
            for node in self.serving:
                member = Member(self.cluster, self.record, group)
                member.join(node)
                members.append(member)
        quiet_s = 0.0
        while quiet_s < _QUIET_S:
            before = sum(each.handed_count for each in members)
            for member in members:
                if member.is_idle:
                    member.take(64, _TAKE_S)
            self.cluster.advance(_TAKE_S)
            for member in members:
                for held in list(member.held):
                    member.finish(held)
            if before != sum(each.handed_count for each in members):
                quiet_s = 0.0
                continue
            self.cluster.advance(_LOOK_S)
            quiet_s += _TAKE_S + _LOOK_S

    def compare(self, number: int) -> None:
        """Have in the history what each node knows and reports."""
        for node in self.serving:
            hosted = node.hosted[_QUEUE]
            self.cluster.add("state", node, queue=_NAME, op=number, text=hosted.state())
            hosted.tell_report()
