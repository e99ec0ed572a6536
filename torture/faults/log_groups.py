"""Groups of replicated topics in simulated time: who coordinates is lost, again and again.

Three whole nodes on simulated disks agree by a simulated engine, which has its troubles as well.
Members come one after the other, at any node: those of an ordered group commit, those of a shared
one are leased messages, and say what became of them. Nobody says something else before they have
heard what became of the last thing, or their node has died. Others look, at any node, where the
groups are.

    what was acknowledged is where the next member begins, and what a look tells; or what was asked
    for since, and nothing ahead of that
    what was acknowledged as done is handed out to nobody again
    what was acknowledged as failed has so many attempts behind it, and is handed out again
    when all has healed, members get on, and all is handed out that may not be done
"""

from functools import partial
from typing import Any, Final

from poe.broker import control
from poe.broker.requests.groups import lease_messages
from poe.broker.requests.request_handler import RequestHandler
from poe.errors import PoeError
from poe.protocol import Done, Failed, Lease, LeaseRequest
from poe.storage import decode_records
from poe.testing.simulated_log import CALM, Hazards
from torture.scenario import Run, Trial
from torture.simulated_log_nodes import LogCluster

_STEPS: Final = 25
_SAID_MAX: Final = 3
_MESSAGES: Final = 60
_TOPIC: Final = b"t"
_ORDERED, _SHARED = "ordered", "shared"
_SESSION_S: Final = 2.0
_PATIENCE_S: Final = 60.0
_TRIES: Final = 3
_BYTES_MAX: Final = 1 << 20
_HAZARDS: Final = [
    CALM,
    Hazards(lose_ack=0.05, lose=0.05, late=0.02, again=0.05, lose_ask=0.1),
    Hazards(lose_ask=0.7),
]


def play(run: Run) -> None:
    """Let each seed make up a history."""
    run.each(lambda trial: _Groups(trial).play())


class _Groups:
    """A cluster, members of two groups, and what they were told."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.random = trial.random
        self.cluster = LogCluster(self.random, 3, 100)
        self.log = self.cluster.log
        self.pointers: list[int] = []
        self.position = 0
        """The greatest one of which a commit was acknowledged."""
        self.asked_position = 0
        """The greatest one of which a commit was asked for: it may be done."""
        self.done: set[bytes] = set()
        self.maybe_done: set[bytes] = set()
        """Of which it was said that they are, whatever came of that."""
        self.attempts: dict[bytes, int] = {}
        """How often each message was acknowledged as failed, alone."""
        self.said_count = 0
        self.has_trouble = False

    def play(self) -> None:
        """Do steps, mend all, and look at what there is."""
        self._begin()
        for number in range(_STEPS):
            self._befall()
            self._pass_time(self.random.choice((_SESSION_S + 0.5, 6.0)))
            self._look()
            member = b"%016d" % number
            if self.random.random() < 0.5:
                self._commit_as(member)
            else:
                self._work_as(member)
        self._mend()
        self._pass_time(30.0)
        self._look()
        self._pass_time(30.0)
        self._finish()
        self.trial.note(acknowledged=self.said_count, done=len(self.done))

    def _begin(self) -> None:
        self._pass_time(1.0)
        made = {"topic": _TOPIC, "properties": {"replicas": 3}}
        self._asked("a", partial(control, op="topic_create", arguments=made))
        for number in range(_MESSAGES):
            message = b"%d" % number
            put = self._asked("a", lambda handler, each=message: handler.put(_TOPIC, [each]))
            self.pointers.append(put)
        self.has_trouble = True

    # ---- trouble --------------------------------------------------------------------------------

    def _befall(self) -> None:
        """Have something happen to a node, or end."""
        name = self.random.choice("abc")
        node = self.cluster.nodes[name]
        match self.random.randrange(8):
            case 0:
                self.log.mend()
                self.log.cut(name)
            case 1:
                self.log.mend()
                self.log.pause(name)
            case 2 if len(self.cluster.running) == 3:
                node.die(node.disk.kill)
            case 3:
                self.log.begin_election()
                self._pass_time(self.random.choice((0.5, 4.0)))
                self.log.end_election()
            case 4:
                self.log.lose_connection(name)
            case 5:
                self.log.hazards = self.random.choice(_HAZARDS)
            case 6 if node.is_running:
                actors = ("log_groups", "log_groups_writer", "log_groups_registry", "logs")
                node.kill_actor(self.random.choice(actors))
            case _:
                self._mend()

    def _mend(self) -> None:
        self.log.mend()
        for each in self.cluster.nodes.values():
            if not each.is_running:
                self.cluster.start(each)

    def _pass_time(self, seconds: float) -> None:
        self.cluster.advance(seconds)
        self.cluster.settle()
        self.cluster.advance(0.001)

    # ---- asking ---------------------------------------------------------------------------------

    def _any_node(self) -> str:
        return self.random.choice([each.name for each in self.cluster.running])

    def _asked(self, name: str, request: Any) -> Any:
        """Return what a node answers, or the error; None where it dies before."""
        answers: list[Any] = []
        node = self.cluster.nodes[name]
        node.ask(request, answers.append)
        if self.has_trouble and self.random.random() < 0.2:
            self._pass_time(0.02)
            self._befall()
        until_s = self.cluster.now_s + _PATIENCE_S
        while not answers and node.is_running and self.cluster.now_s < until_s:
            self._pass_time(0.1)
        is_stuck = not answers and node.is_running
        self.trial.expect(is_true=not is_stuck, otherwise=f"node {name} answers nothing")
        return answers[0] if answers else None

    def _control(self, op: str, **arguments: Any) -> Any:
        """Ask any node; None where it refuses, or does not answer."""
        asked = partial(control, op=op, arguments=arguments)
        answer = self._asked(self._any_node(), asked)
        return None if isinstance(answer, PoeError) else answer

    def _join(self, member: bytes, mode: str) -> Any:
        return self._control(
            "group_join",
            group=mode,
            member=member,
            mode=mode,
            topics=[_TOPIC],
            options={"session_s": _SESSION_S, "lease_s": 1.0, "retry_s": 0.0, "attempts_max": 100},
        )

    def _look(self) -> None:
        """Ask where the group is, and wait for no answer."""
        least = self.position

        def told(answer: Any) -> None:
            if not isinstance(answer, PoeError):
                position = _pointer(answer.get(_TOPIC))
                self._judge_position("told", position, least)

        arguments = {"group": _ORDERED, "member": b"l" * 16}
        asked = partial(control, op="group_positions", arguments=arguments)
        self.cluster.nodes[self._any_node()].ask(asked, told)

    # ---- members --------------------------------------------------------------------------------

    def _commit_as(self, member: bytes) -> None:
        """Go on where the group is, message by message."""
        joined = self._join(member, _ORDERED)
        if joined is None or _TOPIC not in joined["granted"]:
            return
        at = _pointer(joined["granted"][_TOPIC][2])
        self._judge_position(f"{member!r} begins at", at, self.position)
        for _ in range(_SAID_MAX):
            following = next((each for each in self.pointers if each > at), at)
            self.asked_position = max(self.asked_position, following)
            told = self._control(
                "group_commit",
                group=_ORDERED,
                member=member,
                generation=joined["generation"],
                positions={_TOPIC: following},
            )
            if told is None:
                return  # it may be done, later even
            if _TOPIC in told:
                self.position = max(self.position, following)
                self.said_count += 1
                at = following

    def _work_as(self, member: bytes) -> None:
        """Have messages leased, and say what became of them."""
        if self._join(member, _SHARED) is None:
            return
        for _ in range(_SAID_MAX):
            limit = self.random.choice((1, 1, 4))
            leased = self._lease(LeaseRequest(_SHARED, member, limit, _BYTES_MAX, 0.5))
            if leased is None:
                return
            lease, messages = leased
            self._judge(lease, messages)
            if not messages:
                continue
            has_failed = len(messages) == 1 and self.random.random() < 0.5
            done = () if has_failed else (Done(lease.id),)
            failed = (Failed(lease.id, lease.after, lease.last),) if has_failed else ()
            if not has_failed:
                self.maybe_done.update(messages)
            said = LeaseRequest(_SHARED, member, 0, 0, 0.0, done, failed)
            told = self._lease(said)
            if told is None:
                return
            if lease.id not in told[0].lost:
                self.said_count += 1
                if has_failed:
                    self.attempts[messages[0]] = self.attempts.get(messages[0], 0) + 1
                else:
                    self.done.update(messages)

    def _lease(self, request: LeaseRequest) -> tuple[Lease, list[bytes]] | None:
        answer = self._asked(self._any_node(), partial(_leased, request))
        return None if isinstance(answer, PoeError) else answer

    def _finish(self) -> None:
        """See that members get on, and that nothing is held back."""
        self.has_trouble = False
        before = self.said_count
        for number in range(_TRIES):
            self._commit_as(b"end-%012d" % number)
        is_true = self.said_count > before
        self.trial.expect(is_true=is_true, otherwise="no commit is taken when all has healed")
        left = {b"%d" % number for number in range(_MESSAGES)} - self.maybe_done
        member = b"end".ljust(16, b"-")
        for _ in range(_MESSAGES):
            if not left or self._join(member, _SHARED) is None:
                continue
            leased = self._lease(LeaseRequest(_SHARED, member, _MESSAGES, _BYTES_MAX, 1.0))
            if leased is not None and leased[1]:
                self._judge(*leased)
                left.difference_update(leased[1])
                self._lease(LeaseRequest(_SHARED, member, 0, 0, 0.0, (Done(leased[0].id),)))
        self.trial.expect(is_true=not left, otherwise=f"{sorted(left)} are handed out to nobody")

    def _judge_position(self, what: str, at: int, least: int) -> None:
        most = max(least, self.asked_position)
        otherwise = f"{what} {at}, {least} was acknowledged, and {most} asked for"
        self.trial.expect(is_true=least <= at <= most, otherwise=otherwise)

    def _judge(self, lease: Lease, messages: list[bytes]) -> None:
        again = self.done.intersection(messages)
        self.trial.expect(is_true=not again, otherwise=f"{sorted(again)} come again, and are done")
        if len(messages) == 1:
            known = self.attempts.get(messages[0], 0)
            self.trial.expect(
                is_true=lease.attempts >= known,
                otherwise=f"{messages[0]!r} has {lease.attempts} attempts behind it, not {known}",
            )


async def _leased(request: LeaseRequest, handler: RequestHandler) -> tuple[Lease, list[bytes]]:
    lease, found = await lease_messages(handler, request)
    if found is None:
        return lease, []
    return lease, [message for _, message in decode_records(found.records.read())]


def _pointer(told: Any) -> int:
    return told[0] if told else 0
