"""Tables as actors use them: rows, counters, order, access, owners and heirs."""

import pytest

from poe.actors import Down, LoopSystem, Stop
from poe.errors import InvalidTableArgument, TableAccessDenied, TableGone, TableNameTaken
from poe.tables import ANY, END_OF_TABLE, CounterStep, Table, TableAccess, TableKind
from poe.tables.table import TableTransfer
from poe.testing import SimulatedClock
from tests.actors.puppet import Puppet, in_actor, log_of

SETS = [TableKind.SET, TableKind.ORDERED_SET]
BAGS = [TableKind.BAG, TableKind.DUPLICATE_BAG]


@pytest.fixture
def owner(system):
    return system.start(Puppet)


@pytest.fixture
def other(system):
    return system.start(Puppet)


@pytest.fixture
def make(system, owner):
    """Make a table that belongs to `owner`, and return its view."""

    def make_table(name=None, **options):
        tables = []
        system.run_outside(lambda: tables.append(Table.new(owner.cell.instance, name, **options)))
        return tables[0]

    return make_table


@pytest.fixture
def view(system):
    """Return an actor's view of a table."""

    def view_table(table, ref):
        return system.call(ref, lambda puppet, _: table.as_seen_by(puppet))

    return view_table


def end(system, ref):
    system.stop(ref)
    assert not system.is_alive(ref)


def found(puppet, name):
    try:
        return Table.find(puppet, name)
    except TableGone:
        return None


# ---- rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SETS)
def test_a_row_replaces_the_one_with_its_key(make, kind):
    table = make(kind=kind)
    table.insert((1, "a"), (2, "b"))
    table.insert((1, "c"))
    assert table.lookup(1) == [(1, "c")]
    assert len(table) == 2


def test_a_set_keeps_one_and_one_point_zero_and_true_apart(make):
    table = make()
    table.insert((1, "int"), (1.0, "float"), (True, "bool"))
    assert [table.lookup(key) for key in (1, 1.0, True)] == [
        [(1, "int")],
        [(1.0, "float")],
        [(True, "bool")],
    ]


def test_an_ordered_set_takes_one_and_one_point_zero_for_one_key(make):
    table = make(kind=TableKind.ORDERED_SET)
    table.insert((1, "int"), (1.0, "float"), (True, "bool"))
    assert table.rows() == [(1.0, "float"), (True, "bool")]
    assert table.lookup(1) == [(1.0, "float")]


def test_a_bag_keeps_different_rows_in_the_order_they_came(make):
    table = make(kind=TableKind.BAG)
    table.insert((1, "b"), (1, "a"), (1, "b"))
    assert table.lookup(1) == [(1, "b"), (1, "a")]


def test_a_duplicate_bag_keeps_equal_rows_and_removes_them_together(make):
    table = make(kind=TableKind.DUPLICATE_BAG)
    table.insert((1, "b"), (1, "a"), (1, "b"))
    assert len(table) == 3
    table.delete_row((1, "b"))
    assert table.lookup(1) == [(1, "a")]
    table.delete_row((1, "a"))
    assert 1 not in table


def test_an_insert_with_a_bad_row_adds_nothing(make):
    table = make()
    with pytest.raises(InvalidTableArgument):
        table.insert((1, "a"), ())
    assert table.rows() == []


@pytest.mark.parametrize("kind", [TableKind.SET, *BAGS])
def test_what_is_equal_to_itself_alone_is_no_key(make, kind):
    """A row is copied, so that nobody would find it again."""
    table = make(kind=kind)
    for key in (object(), (1, object())):
        with pytest.raises(InvalidTableArgument, match="equal to its copy"):
            table.insert((1, "a"), (key, "b"))
    assert table.rows() == []
    for key in (Puppet, len, TableKind.SET, frozenset({1})):
        table.insert((key, [1]))
        assert table.lookup(key) == [(key, [1])]


@pytest.mark.parametrize("kind", list(TableKind))
def test_insert_new_adds_all_rows_or_none(make, kind):
    table = make(kind=kind)
    assert table.insert_new((1, "a"), (2, "b"))
    assert not table.insert_new((3, "c"), (1, "d"))
    assert sorted(table.rows()) == [(1, "a"), (2, "b")]


def test_values_that_can_change_are_copied_in_and_out(make):
    table = make()
    value = [1]
    table.insert(("key", value))
    value.append(2)
    table.lookup("key")[0][1].append(3)
    assert table.lookup("key") == [("key", [1])]


def test_addresses_in_rows_are_the_same_addresses(make, owner):
    table = make()
    table.insert((owner, [owner]))
    assert table.element(owner, 1)[0] is owner


@pytest.mark.parametrize("kind", list(TableKind))
def test_take_delete_and_clear_remove_rows(make, kind):
    table = make(kind=kind)
    table.insert((1, "a"), (2, "b"), (3, "c"))
    assert table.take(1) == [(1, "a")]
    assert table.take(1) == []
    table.delete(2)
    table.delete(2)
    assert table.rows() == [(3, "c")]
    table.clear()
    assert len(table) == 0


def test_match_returns_the_rows_like_a_pattern(make):
    table = make()
    table.insert((1, (2, "a")), (2, (2, "b")), (3, (4, "a")), (4, (2.0, "a")))
    assert table.match((ANY, (2, ANY))) == [(1, (2, "a")), (2, (2, "b"))]
    assert table.match((ANY,)) == []


def test_the_key_may_be_another_element(make):
    table = make(key_index=1)
    table.insert(("a", 1), ("b", 2))
    assert table.lookup(2) == [("b", 2)]
    with pytest.raises(InvalidTableArgument, match="2 or more"):
        table.insert(("c",))


def test_element_is_one_value_of_a_set_and_a_list_of_a_bag(make):
    single, many = make(), make(kind=TableKind.BAG)
    for table in (single, many):
        table.insert((1, "a"))
    many.insert((1, "b"))
    assert single.element(1, 1) == "a"
    assert many.element(1, 1) == ["a", "b"]
    for key, index in ((2, 1), (1, 2), (1, -1)):
        with pytest.raises(InvalidTableArgument):
            single.element(key, index)


# ---- counters and elements ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", SETS)
def test_a_counter_counts_and_returns_its_new_value(make, kind):
    table = make(kind=kind)
    table.insert(("hits", 1))
    assert table.update_counter("hits") == 2
    assert table.update_counter("hits", -5) == -3
    assert table.update_counter("new", 1, default=("ignored", 10)) == 11
    assert table.lookup("new") == [("new", 11)]


def test_a_counter_past_its_limit_is_reset(make):
    table = make()
    table.insert(("turn", 5))
    step = CounterStep(1, 1, limit=6, reset_to=0)
    assert [table.update_counter("turn", step) for _ in range(3)] == [6, 0, 1]
    assert table.update_counter("turn", CounterStep(1, -2, limit=0, reset_to=9)) == 9


def test_several_counters_change_together_or_not_at_all(make):
    table = make()
    table.insert(("key", 1, 2, "text"))
    assert table.update_counters("key", [CounterStep(1, 1), CounterStep(2, 2)]) == [2, 4]
    with pytest.raises(InvalidTableArgument):
        table.update_counters("key", [CounterStep(1, 1), CounterStep(3, 1)])
    assert table.lookup("key") == [("key", 2, 4, "text")]


@pytest.mark.parametrize(
    "change",
    [
        {"index": "1"},
        {"increment": 1.5},
        {"increment": None},
        {"limit": "x"},
        {"limit": 0, "reset_to": "zz"},
    ],
)
def test_a_counter_stays_an_integer(make, change):
    table = make()
    table.insert(("turn", 5))
    with pytest.raises(InvalidTableArgument, match="use an integer"):
        table.update_counter("turn", CounterStep(**{"index": 1, **change}))
    with pytest.raises(InvalidTableArgument, match=r"increment is 1\.5; use an integer"):
        table.update_counter("turn", 1.5)
    assert table.update_counter("turn", step=True) == 6
    assert table.update_counter("turn", CounterStep(1, limit=0, reset_to=False)) == 0
    assert table.update_counter("turn") == 1


@pytest.mark.parametrize("step", [CounterStep(0), CounterStep(3), CounterStep(2), CounterStep(-1)])
def test_a_key_a_text_and_nothing_are_no_counters(make, step):
    table = make()
    table.insert((1, 1, True))
    with pytest.raises(InvalidTableArgument):
        table.update_counter(1, step)
    with pytest.raises(InvalidTableArgument):
        table.update_counter("missing")


def test_update_element_changes_anything_but_the_key(make):
    table = make()
    table.insert((1, "a"))
    assert table.update_element(1, 1, "b")
    assert not table.update_element(2, 1, "b")
    for index in (0, 2):
        with pytest.raises(InvalidTableArgument):
            table.update_element(1, index, "c")
    assert table.rows() == [(1, "b")]


@pytest.mark.parametrize("kind", BAGS)
def test_rows_of_a_bag_are_not_updated(make, kind):
    table = make(kind=kind)
    table.insert((1, 1))
    with pytest.raises(InvalidTableArgument):
        table.update_counter(1)
    with pytest.raises(InvalidTableArgument):
        table.update_element(1, 1, 2)


# ---- order -------------------------------------------------------------------------------------


def test_an_ordered_set_is_walked_in_both_directions(make):
    table = make(kind=TableKind.ORDERED_SET)
    table.insert((3, ""), ("a", ""), (1, ""), ((1,), ""))
    assert [row[0] for row in table.rows()] == [1, 3, "a", (1,)]
    assert (table.first(), table.last()) == (1, (1,))
    assert (table.next(1.5), table.previous(1.5)) == (3, 1)
    assert (table.next((1,)), table.previous(1)) == (END_OF_TABLE, END_OF_TABLE)
    table.delete(1)
    assert table.first() == 3
    table.clear()
    assert table.first() is END_OF_TABLE


@pytest.mark.parametrize("kind", [TableKind.SET, *BAGS])
def test_a_table_without_order_is_walked_through_all_its_keys(make, kind):
    table = make(kind=kind)
    table.insert(*[(number, "") for number in range(5)])
    keys = [table.first()]
    while (key := table.next(keys[-1])) is not END_OF_TABLE:
        keys.append(key)
    assert sorted(keys) == list(range(5))
    with pytest.raises(InvalidTableArgument):
        table.next("missing")


# ---- access ------------------------------------------------------------------------------------


@pytest.mark.parametrize("access", list(TableAccess))
def test_access_says_what_others_may_do(make, view, other, access):
    reads, writes = access is not TableAccess.PRIVATE, access is TableAccess.PUBLIC
    table = make(access=access)
    table.insert((1, "a"))
    theirs = view(table, other)
    for is_allowed, operation in (
        (reads, lambda: theirs.lookup(1)),
        (writes, lambda: theirs.insert((2, "b"))),
        (writes, lambda: theirs.rename("other")),
        (writes, theirs.drop),
    ):
        if is_allowed:
            operation()
        else:
            with pytest.raises(TableAccessDenied, match=access.value):
                operation()
    assert table.is_gone == writes


def test_only_the_owner_gives_a_table_away_or_names_its_heir(make, view, owner, other):
    theirs = view(make(access=TableAccess.PUBLIC), other)
    for operation in (theirs.give_away, theirs.set_heir):
        with pytest.raises(TableAccessDenied):
            operation(owner)


def test_a_suspended_owner_keeps_nobody_from_reading(system, make, owner):
    make("settings").insert(("size", 3))
    system.suspend(owner)
    assert in_actor(system, lambda puppet: Table.find(puppet, "settings").lookup("size")) == [
        ("size", 3)
    ]


# ---- names, owners and heirs -------------------------------------------------------------------


def test_a_name_belongs_to_one_table(system, make):
    table, second = make("a"), make("b")
    with pytest.raises(TableNameTaken):
        make("a")
    with pytest.raises(TableNameTaken):
        second.rename("a")
    table.rename("c")
    make("a")
    table.drop()
    assert in_actor(system, lambda puppet: found(puppet, "c")) is None
    assert in_actor(system, lambda puppet: found(puppet, "a")) is not None


def test_a_table_is_gone_before_anyone_hears_of_its_owners_end(system, make, owner, other):
    make("mine")
    seen = []

    def look(puppet):
        puppet.monitor(owner)
        puppet.handle_info = lambda down: seen.append((type(down), found(puppet, "mine")))

    system.cast(other, look)
    end(system, owner)
    assert seen == [(Down, None)]


def test_the_heir_inherits_the_table_and_what_goes_with_it(system, make, owner, other):
    table = make("mine", heir=other, heir_data={"since": 1})
    table.insert((1, "a"))
    end(system, owner)
    assert log_of(system, other) == [("info", TableTransfer(table, owner, {"since": 1}))]
    assert table.owner is other
    rows = system.call(other, lambda puppet, _: Table.find(puppet, "mine").insert((2, "b")))
    assert rows is None
    end(system, other)
    assert table.is_gone
    assert table.owner is None


class CopiedOnce:
    """Can be copied once."""

    count = 0

    def __deepcopy__(self, memo):
        self.count += 1
        if self.count > 1:
            msg = "no copy"
            raise ValueError(msg)
        return self


def test_an_end_is_told_although_what_goes_with_a_table_cannot_be_copied(
    system, make, owner, other
):
    table, data = make(heir=other), CopiedOnce()
    system.call(owner, lambda *_: table.set_heir(other, data))
    end(system, owner)
    assert log_of(system, other) == [("info", TableTransfer(table, owner, data))]


def test_a_crash_passes_tables_on_as_well(system, make, owner, other):
    table = make(heir=other)
    system.cast(owner, lambda _: Stop("boom"))
    assert table.owner is other


@pytest.mark.parametrize("is_taken_back", [True, False])
def test_without_a_live_heir_a_table_ends_with_its_owner(system, make, owner, other, is_taken_back):
    table = make(heir=other)
    if is_taken_back:
        table.set_heir(None)
    else:
        end(system, other)
    end(system, owner)
    for operation in (table.rows, table.clear, lambda: table.set_heir(None), lambda: len(table)):
        with pytest.raises(TableGone):
            operation()


def test_a_gift_changes_the_owner_and_tells_the_new_one(system, make, view, owner, other):
    table = make("mine")
    table.give_away(other, "gift")
    assert log_of(system, other) == [("info", TableTransfer(view(table, other), owner, "gift"))]
    with pytest.raises(TableAccessDenied):
        table.insert((1, "a"))
    end(system, owner)
    assert not table.is_gone


def test_a_table_is_not_given_to_its_owner_or_the_dead(system, make, owner, other):
    table = make()
    end(system, other)
    for receiver in (owner, other):
        with pytest.raises(InvalidTableArgument, match="alive"):
            table.give_away(receiver)


def test_a_table_is_seen_by_actors_of_its_system_alone(make):
    table = make("shared", access=TableAccess.PUBLIC)
    with LoopSystem(clock=SimulatedClock()) as elsewhere:
        stranger = elsewhere.start(Puppet)
        assert stranger is not None
        with pytest.raises(InvalidTableArgument, match="an actor of the table's system"):
            table.as_seen_by(stranger.cell.instance)


def test_a_table_is_given_and_left_to_actors_of_its_system_alone(system, make, owner):
    """In another one nobody hears of the end of its owner: it would stay for ever."""
    table = make("mine")
    with LoopSystem(clock=SimulatedClock()) as there:
        outside = system.actors.new_outside_cell("thread", Puppet()).address
        for stranger in there.start(Puppet), outside, "name":
            with pytest.raises(InvalidTableArgument, match="of this system that is alive"):
                table.give_away(stranger)
            with pytest.raises(InvalidTableArgument, match="an actor of this system, or None"):
                table.set_heir(stranger)
            with pytest.raises(InvalidTableArgument, match="an actor of this system, or None"):
                make(heir=stranger)
    end(system, owner)
    assert table.is_gone


def test_an_application_thread_reads_under_the_lock(live):
    owner = live.start(Puppet)
    table = live.call(owner, lambda puppet, _: Table.new(puppet, "mine"))
    rows = []
    live.cast(owner, lambda puppet: table.insert((1, "a")))
    live.run_outside(lambda: rows.extend(table.rows()))
    assert rows == [(1, "a")]


def test_a_table_needs_a_sensible_key_index(make):
    for key_index in (-1, "1", 0.0):
        with pytest.raises(InvalidTableArgument):
            make(key_index=key_index)


def test_a_kind_or_an_access_that_there_is_not_is_told_with_those_there_are(make):
    with pytest.raises(InvalidTableArgument, match="use set, ordered_set, bag, duplicate_bag"):
        make(kind="heap")
    with pytest.raises(InvalidTableArgument, match="use private, protected, public"):
        make(access=3)
    assert make(kind="bag").kind is TableKind.BAG


def test_a_table_shows_its_name_and_is_true_when_empty(make):
    assert repr(make("mine")) == "<table mine>"
    assert bool(make())
    assert "0x" in repr(make())
