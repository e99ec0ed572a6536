"""Units that are offered range by range: what is handed out, withdrawn, and done elsewhere."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from poe.broker.groups.failures import NONE_YET, Failures
from poe.broker.groups.state import GroupState
from tests.broker.groups.work import SECOND, A, B, definition, who

U = b"q@origin.1"


class Offers:
    """A group whose units are offered; each number is the pointer of a message."""

    def __init__(self, **options):
        self.state = GroupState.create(definition("shared", **options), 0)
        self.shared = self.state.shared
        self.now_us = 0
        for letter in "ab":
            self.state.join(who(letter), 0)

    def offer(self, after, last, failures=NONE_YET, unit=U):
        return self.shared.offer(unit, after, last, failures, self.now_us)

    def take(self, member=A, limit=100):
        want = self.shared.want(member, limit, 1 << 20, self.now_us)
        if want is None:
            return None
        last = min(want.last, want.after + want.limit)
        return self.shared.leased(want, last, last - want.after, 1, self.now_us)

    def want(self, member=A):
        want = self.shared.want(member, 100, 1 << 20, self.now_us)
        assert want is not None
        return want

    def why(self, member):
        returned = self.want(member).returned
        assert returned is not None
        return returned.why

    def said(self, lease, outcome, after=None, last=None):
        bounds = (lease.after if after is None else after, lease.last if last is None else last)
        return self.shared.acknowledge([], [(lease.id, *bounds, outcome, 0, "no")], self.now_us)

    def done(self, lease):
        return self.shared.acknowledge([(lease.id, None)], [], self.now_us)

    def taken(self, *args):
        lease = self.take(*args)
        return None if lease is None else (lease.after, lease.last)


def test_neighbours_that_are_offered_are_leased_together_and_no_lease_spans_a_gap():
    work = Offers()
    for bounds in [(0, 10), (10, 20), (30, 40)]:
        assert work.offer(*bounds)
    assert work.taken() == (0, 20)
    assert work.taken() == (30, 40)
    assert work.take() is None
    assert not work.shared.has_work
    assert work.offer(20, 30)
    assert work.shared.has_work
    assert work.taken() == (20, 30)


def test_what_is_offered_twice_is_handed_out_once():
    work = Offers()
    work.offer(0, 10)
    lease = work.take(A, 5)
    assert not work.offer(0, 10)
    assert work.offer(5, 15)
    assert work.taken() == (5, 15)
    assert work.done(lease) == []
    assert work.shared.known(U, 0, 20) == [(5, 15)]


def test_units_take_turns():
    work = Offers()
    for unit in (b"x", b"y"):
        work.offer(0, 10, unit=unit)
    assert [work.take(A, 5).unit for _ in range(4)] == [b"x", b"y", b"x", b"y"]


def test_what_was_tried_elsewhere_comes_with_its_failures():
    work = Offers()
    work.offer(0, 10)
    work.offer(10, 20, Failures(2, None, 0, "bad"))
    lease = work.take()
    assert (lease.after, lease.last, lease.attempts) == (10, 20, 2)


def test_what_is_withdrawn_is_not_handed_out_and_what_is_leased_may_be_finished():
    work = Offers()
    work.offer(0, 30)
    first, second = work.take(A, 10), work.take(A, 10)
    assert work.shared.withdraw(U, 0, 30) == [(20, 30)]
    assert work.take(B) is None
    assert work.done(first) == []
    assert work.said(second, "release") == []
    assert work.take(B) is None
    assert work.shared.known(U, 0, 30) == []
    assert not work.shared.has_work


def test_what_was_withdrawn_and_is_offered_again_comes_back_from_its_lease():
    work = Offers()
    work.offer(0, 10)
    lease = work.take(A)
    assert work.shared.withdraw(U, 0, 10) == []
    assert not work.offer(0, 10)
    work.said(lease, "release")
    assert work.taken(B) == (0, 10)


def test_what_is_done_elsewhere_leaves_leases_and_what_is_to_be_handed_out():
    work = Offers()
    work.offer(0, 40)
    lease, returned = work.take(A, 10), work.take(A, 10)
    work.said(returned, "release")
    assert work.shared.learn_done(U, 15, 25) == []
    assert work.shared.learn_done(U, 5, 8) == []
    assert work.shared.learn_done(U, 0, 10) == [lease.id]
    assert work.done(lease) == [lease.id]
    assert [work.taken(B), work.taken(B), work.taken(B)] == [(10, 15), (25, 40), None]
    changes = [change for change in work.state.take_changes() if change[0] == "done"]
    assert changes == []


def test_what_is_not_found_is_withdrawn_and_not_done():
    work = Offers()
    work.offer(0, 10)
    work.shared.nothing(work.want())
    assert work.take() is None
    assert [change for change in work.state.take_changes() if change[0] == "done"] == []
    work.offer(0, 10)
    work.said(work.take(), "release")
    work.shared.nothing(work.want())
    assert work.shared.known(U, 0, 10) == []


def test_a_range_that_comes_back_says_why():
    work = Offers(lease_s=10, session_s=30)
    why = []
    work.offer(0, 10)
    for outcome in ("release", "retry"):
        work.said(work.take(), outcome)
        why.append(work.why(B))
    work.take(B)
    work.now_us = 11 * SECOND
    work.state.expire(work.now_us)
    why.append(work.why(A))
    assert why == ["released", "retried", "lease expired"]


def test_a_lease_whose_parts_came_back_shares_its_place_with_the_next():
    work = Offers()
    work.offer(0, 10)
    first = work.take(A)
    work.said(first, "release", 0, 5)
    second = work.take(B)
    assert (second.after, second.last) == (0, 5)
    assert [each.id for each in work.shared.leases_of(U, 0, 10)] == [second.id, first.id]
    work.done(first)
    assert work.shared.known(U, 0, 10) == [(0, 5)]
    work.done(second)
    assert work.shared.known(U, 0, 10) == []


def test_a_dead_letter_leaves_what_is_known_when_it_is_buried():
    work = Offers(attempts_max=1)
    work.offer(0, 10)
    work.said(work.take(), "retry")
    assert work.shared.known(U, 0, 10) == [(0, 10)]
    assert not work.offer(0, 10)
    work.shared.learn_done(U, 0, 10)
    dying = work.shared.next_dying()
    assert dying is not None
    work.shared.buried(dying)
    assert work.shared.known(U, 0, 10) == []


def test_what_is_surrendered_is_handed_back_with_its_failures():
    borrower, owner = Offers(), Offers(attempts_max=3)
    owner.offer(0, 30)
    lease = owner.take()
    borrower.offer(0, 30)
    borrower.said(borrower.take(A, 10), "retry")
    parts = borrower.shared.surrender(U, 0, 30)
    assert [(after, last, failures.attempts) for after, last, failures in parts] == [
        (10, 30, 0),
        (0, 10, 1),
    ]
    for after, last, failures in parts:
        assert not owner.shared.hand_back(B, lease.id, (after, last), failures, 0)
        assert owner.shared.hand_back(A, lease.id, (after, last), failures, 0)
    assert not owner.shared.hand_back(A, lease.id, (0, 10), NONE_YET, 0)
    assert [(each.after, each.last, each.attempts) for each in (owner.take(), owner.take())] == [
        (10, 30, 0),
        (0, 10, 1),
    ]


def test_what_is_handed_back_as_failed_too_often_dies():
    owner = Offers(attempts_max=3)
    owner.offer(0, 10)
    lease = owner.take()
    assert owner.shared.hand_back(A, lease.id, (0, 10), Failures(3, None, 0, "bad"), 0)
    dying = owner.shared.next_dying()
    assert dying is not None
    assert dying.attempts == 3


bounds = st.tuples(st.integers(0, 20), st.integers(1, 8)).map(lambda each: (each[0], sum(each)))
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["offer", "withdraw", "learn_done"]), bounds),
        st.tuples(st.just("take"), st.integers(1, 6)),
        st.tuples(st.sampled_from(["finish", "release_part", "retry"]), st.integers(0, 5)),
        st.tuples(st.just("expire"), st.just(11)),
    ),
    max_size=40,
)


class Model:
    """What is to be so of a unit after each step, message by message."""

    def __init__(self):
        self.work = Offers(lease_s=10, session_s=3000, attempts_max=1000)
        self.leases = []
        self.done, self.elsewhere, self.wanted = set(), set(), set()

    def offer(self, value):
        for part in _runs(_numbers([value]) - self.done - self.elsewhere):
            self.work.offer(*part)
            self.wanted |= _numbers([part])

    def withdraw(self, value):
        self.work.shared.withdraw(U, *value)
        self.wanted -= _numbers([value])

    def learn_done(self, value):
        self.work.shared.learn_done(U, *value)
        self.elsewhere |= _numbers([value])

    def take(self, limit):
        lease = self.work.take(A, limit)
        if lease is not None:
            self.leases.append(lease)

    def expire(self, seconds):
        self.work.now_us += seconds * SECOND
        self.work.state.expire(self.work.now_us)

    def finish(self, number):
        for lease in self.leases[number : number + 1]:
            self.work.done(lease)

    def release_part(self, number):
        for lease in self.leases[number : number + 1]:
            self.work.said(lease, "release", lease.after, min(lease.last, lease.after + 2))

    def retry(self, number):
        for lease in self.leases[number : number + 1]:
            self.work.said(lease, "retry")

    def check(self):
        for change in self.work.state.take_changes():
            if change[0] == "done":
                now = _numbers(zip(change[2::2], change[3::2], strict=True))
                assert not now & self.done
                self.done |= now
        known = _numbers(self.work.shared.known(U, 0, 100))
        leases = self.work.shared.leases_of(U, 0, 100)
        leased = [number for lease in leases for number in _numbers(lease.left())]
        assert len(leased) == len(set(leased))
        assert set(leased) <= known
        assert not known & self.done
        assert known - set(leased) == self.left - set(leased)

    @property
    def left(self):
        return self.wanted - self.done - self.elsewhere


@settings(deadline=None)
@given(steps)
def test_each_message_is_done_or_leased_or_offered_or_not_known(steps):
    model = Model()
    for kind, value in steps:
        getattr(model, kind)(value)
        model.check()
    for _ in range(2):  # what has expired is due some time later
        model.expire(1000)
    handed: Counter[int] = Counter()
    while (lease := model.work.take(A) or model.work.take(B)) is not None:
        handed.update(_numbers([(lease.after, lease.last)]))
        model.work.done(lease)
    assert set(handed.values()) <= {1}
    assert handed.keys() == model.left


def _numbers(ranges):
    return {number for after, last in ranges for number in range(after + 1, last + 1)}


def _runs(numbers):
    runs: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number - 1, number))
    return runs
