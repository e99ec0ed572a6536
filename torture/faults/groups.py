"""Groups in simulated time: crashes, silence, late answers, restarts and power cuts, at random."""

from collections.abc import Callable
from random import Random

from torture.scenario import Run, Trial
from torture.simulated_group import Held, OrderedWorld, SharedWorld

_STEPS = 200
_CLIENTS = 4
_UNITS = {b"t": [b"t-0", b"t-1", b"t-2", b"t-3", b"t-4"], b"u": [b"u"], b"v": [b"v-0", b"v-1"]}
_INSTANCES = [None, None, None, "i", "j"]
_WISHES = [None, None, None, (b"t",), (b"u", b"v*"), (b"nowhere",)]
_LOST_COUNTS = [0, 0, 0, 1, 5, 40]
"""Changes that go with the end of a node: none by a kill, the last ones by a power cut."""

Step = tuple[int, Callable[[], object]]
"""How often it is chosen, and what it does."""


def play(run: Run) -> None:
    """Do both modes in turn."""
    run.each(lambda trial: (_ordered if trial.number % 2 else _shared)(trial))


def _ordered(trial: Trial) -> None:
    """Hand units over among clients, some of which do not listen."""
    random = trial.random
    world = OrderedWorld(_UNITS)

    def client() -> int:
        number = random.randrange(_CLIENTS)
        if number not in world.members and random.random() < 0.5:
            join(number)
        return number

    def join(number: int) -> None:
        wishes, instance = random.choice(_WISHES), random.choice(_INSTANCES)
        world.join(number, wishes, is_lost=random.random() < 0.1, instance=instance)

    def beat() -> None:
        dice = [random.random() for _ in range(3)]
        world.beat(client(), obeys=dice[0] < 0.7, is_lost=dice[1] < 0.1, may_wait=dice[2] < 0.3)

    def set_units() -> None:
        count = random.randint(1, 9)
        world.set_units({**_UNITS, b"t": [b"t-%d" % each for each in range(count)]})

    steps: list[Step] = [
        (4, lambda: join(random.randrange(_CLIENTS))),
        (3, lambda: world.leave(client())),
        (40, beat),
        (20, lambda: world.commit(client())),
        (20, lambda: world.sleep(random.choice([0.001, 0.02, 1, 1, 3, 11]))),
        (3, set_units),
        (1, lambda: world.delete(random.choice(list(_UNITS)))),
        (1, lambda: world.reset(random.choice([b"t-0", b"u", b"v-1"]))),
        (2, lambda: world.pause(is_paused=random.random() < 0.5)),
        (2, lambda: world.end_node(random.choice(_LOST_COUNTS))),
        (2, world.compact),
    ]
    _walk(random, steps, world.check)
    world.finish()
    trial.note(steps=_STEPS, commits=len(world.commits))


def _shared(trial: Trial) -> None:
    """Hand messages out to clients, some of which end, or wake up too late."""
    random = trial.random
    crowd = _Crowd(random)
    world = crowd.world
    steps: list[Step] = [
        (4, lambda: world.join(random.randrange(_CLIENTS))),
        (2, lambda: world.leave(crowd.client())),
        (30, lambda: world.beat(crowd.client())),
        (30, lambda: world.take(crowd.client(), random.choice([1, 1, 2, 8, 64]))),
        (15, crowd.finish),
        (15, crowd.finish_part),
        (6, lambda: world.sleep(random.choice([0.1, 1, 1, 5, 11, 21]))),
        (2, crowd.give_back),
        (1, crowd.set_units),
        (1, lambda: world.pause(is_paused=random.random() < 0.4)),
        (1, crowd.reset),
        (1, crowd.delete),
        (3, crowd.extend),
        (6, lambda: world.put_letter(is_buried=random.random() < 0.8)),
        (1, lambda: world.end_node(random.choice(_LOST_COUNTS))),
        (2, world.compact),
    ]
    _walk(random, steps, world.check)
    world.finish()
    trial.note(steps=_STEPS, leases=len(world.held), letters=len(world.letters))


class _Crowd:
    """The clients of a group of mode `shared`, and what they do by chance."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.world = SharedWorld(
            {
                unit: sorted(random.sample(range(1, 10_000), random.randint(1, 100)))
                for unit in (b"a", b"b", b"c")
            },
            lease_messages_max=random.choice([10, 40, 1000]),
            leases_max=random.choice([5, 1000, 1000]),
            holes_max=random.choice([3, 1000, 1000]),
            attempts_max=random.choice([1, 2, 3]),
            retry_s=0.5,
        )

    def client(self) -> int:
        """One of them; most often it is a member."""
        number = self._random.randrange(_CLIENTS)
        if number not in self.world.members and self._random.random() < 0.8:
            self.world.join(number)
        return number

    def finish(self) -> None:
        """Acknowledge all of a lease, which may be over."""
        if (held := self._lease()) is not None:
            self.world.acknowledge(held, None, is_failed=False)

    def finish_part(self) -> None:
        """Say of some messages of a lease what became of them."""
        if (held := self._lease()) is not None:
            low = self._random.randrange(len(held.messages))
            part = slice(low, low + self._random.randint(1, 4))
            self.world.acknowledge(
                held,
                part,
                is_failed=self._random.random() < 0.4,
                outcome=self._random.choice(["retry", "retry", "retry", "dead"]),
                delay_s=self._random.choice([None, None, 0, 3]),
                is_rest_done=self._random.random() < 0.2,
            )

    def give_back(self) -> None:
        """Give a lease back."""
        if (held := self._lease()) is not None:
            self.world.release(held)

    def extend(self) -> None:
        """Ask for more time."""
        if (held := self._lease()) is not None:
            self.world.extend(held, self._random.choice([1, 30]))

    def set_units(self) -> None:
        """Have a unit less, or all."""
        away = self._random.choice([b"a", b"b", b"nothing", b"nothing"])
        self.world.set_units(self.world.pointers.keys() - {away})

    def reset(self) -> None:
        """Go on somewhere in a unit."""
        unit = self._random.choice(list(self.world.pointers))
        self.world.reset(unit, self._random.choice([0, *self.world.pointers[unit]]))

    def delete(self) -> None:
        """Delete a unit; there is another one of its name then."""
        self.world.delete(self._random.choice(list(self.world.pointers)))

    def _lease(self) -> Held | None:
        """One of the last ones."""
        return self._random.choice(self.world.held[-8:]) if self.world.held else None


def _walk(random: Random, steps: list[Step], check: Callable[[], None]) -> None:
    """Do steps by chance, as many as a trial has, and look after each."""
    weights = [weight for weight, _ in steps]
    for _, step in random.choices(steps, weights, k=_STEPS):
        step()
        check()
