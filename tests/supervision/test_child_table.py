"""The table of children: order, slots, and finding a child by its ref."""

from poe.actors import GenServer
from poe.supervision.child_spec import ChildSpec
from poe.supervision.child_table import RESTARTING, ChildTable


def table_of(*ids):
    return ChildTable(ChildSpec(id=each, actor=GenServer) for each in ids)


def test_children_start_in_the_order_given_and_added_ones_are_last():
    table = table_of("b", "a")
    table.add(ChildSpec(id="c", actor=GenServer), "ref c")
    assert table.ids() == ["b", "a", "c"]
    assert [child.slot for child in table] == [None, None, "ref c"]


def test_a_child_is_found_by_its_present_ref_only():
    table = table_of("a")
    table.set_slot("a", "old")
    table.set_slot("a", "new")
    assert table.find_ref("old") is None
    assert table.find_ref("new") is table["a"]


def test_a_restarting_child_has_no_ref():
    table = table_of("a")
    table.set_slot("a", "ref")
    table.set_slot("a", RESTARTING)
    assert table.find_ref("ref") is None
    assert table.find_ref(RESTARTING) is None
    assert not table["a"].is_running


def test_a_removed_child_is_forgotten_with_its_ref():
    table = table_of("a")
    table.set_slot("a", "ref")
    table.remove("a")
    assert (len(table), table.get("a"), table.find_ref("ref")) == (0, None, None)
