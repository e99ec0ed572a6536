"""Whatever ends whenever: nothing is lost, nothing comes twice; and mutants are noticed."""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from poe.mapping import unit as units
from poe.mapping.decision import Put
from poe.mapping.plan import Decided, Plan, Sent, Target
from poe.mapping.unit import Judged, Unit
from tests.mapping import simulated_mapping
from tests.mapping.simulated_mapping import World

SEEDS = range(150)


@pytest.fixture(autouse=True)
def _nobody_is_given_up(monkeypatch):
    """Owners end so often here that each message is alone with one at some time."""
    monkeypatch.setattr(units, "DEATHS_MAX", 1 << 30)


def result(seed, **options):
    world = World(seed, **options)
    world.run()
    return world.stored(), world.expected()


@pytest.mark.slow
@pytest.mark.parametrize("is_idle_long", [False, True])
def test_nothing_is_lost_or_twice(is_idle_long):
    for seed in SEEDS:
        stored, expected = result(seed, is_idle_long=is_idle_long)
        assert stored == expected, seed


@pytest.mark.slow
def test_a_power_cut_that_sets_plans_back_loses_nothing():
    twice = 0
    for seed in SEEDS:
        stored, expected = result(seed, power_cuts=True)
        assert not expected - stored, seed
        assert not set(stored) - set(expected), seed
        twice += (stored - expected).total()
    assert twice, "the model shows no power cut"


def times_stored(world):
    """Return how often each number is stored, on whichever topic."""
    return Counter(int(each.split()[-1]) for each in world.stored().elements())


def times_expected(world):
    return Counter(int(each.split()[-1]) for each in world.expected().elements())


@pytest.mark.slow
def test_a_batch_is_not_repeated_with_other_rules():
    for seed in SEEDS:
        world = World(seed, rules_change=True)
        world.run()
        assert times_stored(world) == times_expected(world), seed


class PlansAfterPuts(Unit):
    def _commit_and_store(self, plan, judged, columns):
        yield from self._store(plan, judged)
        yield from self._commit(plan)
        assert self._rest is not None
        count = len(columns.pointers)
        self._rest = None if count == len(self._rest.pointers) else units._tail(self._rest, count)  # noqa: SLF001
        self._position, self._number = plan.last, self._number + 1
        self._attempts, self._trial = 0, plan.trial


class OtherBounds(Unit):
    def _repeat(self, plan):
        columns = yield from self._read_all(plan)
        assert columns is not None
        count = max(1, len(columns.pointers) - 1)
        columns = units._head(columns, count)  # noqa: SLF001
        judged = yield from self._judge_again(self._rules(), plan, columns)
        yield from self._store(plan, judged)
        self._position = columns.pointers[-1]


class OneLife(Unit):
    """All owners put under one name, and go on with the numbers of those before."""

    def _take_over(self):
        if self._grant.data:
            before = Plan.decode(self._grant.data)
            self._number = before.number + (not before.is_empty)
        self._grant = self._grant._replace(life=1)
        yield from super()._take_over()


class AnyRules(Unit):
    def _repeat(self, plan):
        yield from super()._repeat(replace(plan, rules=self._rules().hash))


def is_noticed(**options):
    for seed in SEEDS:
        try:
            stored, expected = result(seed, **options)
        except AssertionError:
            return True
        if stored != expected:
            return True
    return False


@pytest.mark.parametrize(
    "options",
    [
        {"is_fenced": False},
        {"ends_on_doubt": False},
        {"unit": PlansAfterPuts},
        {"unit": OtherBounds},
    ],
    ids=["no fencing", "a commit is made again", "plan after put", "other bounds"],
)
def test_a_mutant_is_noticed(options):
    assert is_noticed(**options)


@pytest.mark.slow
def test_a_life_that_is_not_renewed_loses_messages_at_a_power_cut():
    lost = 0
    for seed in SEEDS:
        stored, expected = result(seed, unit=OneLife, power_cuts=True)
        lost += (expected - stored).total()
    assert lost


def test_producers_that_are_forgotten_are_noticed(monkeypatch):
    monkeypatch.setattr(units, "producer_of", simulated_mapping.unpinned)
    assert is_noticed(is_idle_long=True)


@pytest.mark.slow
def test_rules_that_change_under_a_plan_are_noticed():
    worlds = [World(seed, rules_change=True, unit=AnyRules) for seed in SEEDS]
    for world in worlds:
        world.run()
    assert any(times_stored(world) != times_expected(world) for world in worlds)


def _same(rules):
    return rules


def test_a_message_over_which_processes_end_is_alone_in_the_end_and_given_up(monkeypatch):
    monkeypatch.setattr(units, "DEATHS_MAX", 5)
    world = World(0, count=40)
    deaths = 0

    class Deadly(simulated_mapping.SimulatedRules):
        def judge(self, batch):
            if b"20" in batch.values:
                raise SystemExit
            return super().judge(batch)

    while True:
        rules = Deadly(1, world.rng, {})
        world.generation += 1
        pointer, data = world.log[-1] if world.log else (0, b"")
        grant = units.Grant(b"source", world.generation, pointer, data)
        process = b"%d" % world.generation
        work = Unit("m", grant, partial(_same, rules), 16, process=process).work()
        owner = simulated_mapping.Owner(world.generation, work, None)
        try:
            world.begin(owner)
            break
        except SystemExit:
            deaths += 1
    expected = world.expected()
    expected[b"even 20"] = 0
    expected[b"dead 20"] = 1
    assert world.stored() == +expected
    assert deaths < 5 + 6  # halves of 16, and each time that it was alone


def test_a_message_for_more_topics_than_a_plan_has_room_for_is_given_up_and_others_go_on():
    names = [b"t%d" % number for number in range(200)]

    class Wide(simulated_mapping.SimulatedRules):
        def judge(self, batch):
            puts = {
                name: Put([place], [value], None, None)
                for place, value in enumerate(batch.values)
                for name in (names if value == b"3" else names[:2])
            }
            return Judged(Decided(batch, puts), {})

    world = World(0, count=5)
    rules = Wide(1, world.rng, {})
    work = Unit("m", units.Grant(b"source", 1, 0), lambda: rules, 8, process=b"1").work()
    plans: list[Plan] = []
    stored: list[Sent] = []
    answer: object = None
    while True:
        match effect := work.send(answer):
            case units.Read(first, last, limit, is_to_wait):
                if is_to_wait:
                    break
                answer = world._read(first, last, limit)  # noqa: SLF001 - what there is to read
            case units.Describe(topics):
                answer = {each: Target((each, each + b"-1"), False) for each in topics}
            case units.Commit(_, data):
                plans.append(Plan.decode(data))
                answer = True
            case _:
                stored += effect.puts if isinstance(effect, units.Store) else ()
                answer = None
    [given_up] = [each for each in plans if each.reason is not None]
    assert (given_up.last, given_up.count) == (3, 1)
    assert "onto too many topics" in str(given_up.reason)
    assert plans[-1].first == 5
    assert [each.messages for each in stored if each.topic.startswith(simulated_mapping.DEAD)] == [
        [b"3"]
    ]


class Awaited(simulated_mapping.SimulatedRules):
    """Rules that wait in front of each message."""

    def judge(self, batch):
        return Judged(Decided(batch, {}), {}, units.Held(0, "stop", "rule", "it is away"))


@pytest.mark.parametrize(
    ("rules", "awaited"),
    [(Awaited, units.Wait), (simulated_mapping.SimulatedRules, units.Describe)],
)
def test_who_waits_and_ends_has_not_died_of_the_message_that_it_waits_with(
    monkeypatch, rules, awaited
):
    """In front of it, or for a target that cannot be had; however often it is started anew."""
    monkeypatch.setattr(units, "DEATHS_MAX", 2)
    world = World(0, count=2)
    for process in (b"1", b"2", b"3", b"4"):
        made = rules(1, world.rng, {})
        world.generation += 1
        grant = units.Grant(b"source", world.generation, *(world.log or [(0, b"")])[-1])
        work = Unit("m", grant, partial(_same, made), 16, process=process).work()
        owner = simulated_mapping.Owner(world.generation, work, next(work))
        while not isinstance(owner.effect, awaited):
            world._carry_out(owner, may_fail=False)  # noqa: SLF001 - up to there
        work.close()
        assert not [each for _, data in world.log if (each := Plan.decode(data).reason) is not None]


def test_who_is_about_to_try_again_behind_a_wait_says_so_first():
    """Else a message of which processes die with each second attempt would be tried for ever."""
    world = World(0, count=2)
    made = Awaited(1, world.rng, {})
    grant = units.Grant(b"source", 1, 0)
    work = Unit("m", grant, partial(_same, made), 16, process=b"1").work()
    world.generation = 1
    owner = simulated_mapping.Owner(1, work, next(work))
    for _ in range(3):
        named = []
        while not isinstance(owner.effect, units.Wait):
            world._carry_out(owner, may_fail=False)  # noqa: SLF001 - up to there
            trials = [Plan.decode(data).trial for _, data in world.log[-1:]]
            named += [trial.by for trial in trials if trial is not None]
        assert b"1" in named
        assert named[-1] == b""
        owner.effect = work.send(None)
