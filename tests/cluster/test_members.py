"""Tables of members join into the same on all nodes, and who lives is told apart from them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.cluster.identity import NodeRef, Peer
from poe.cluster.members.flapping import FORGIVE_US, OUT_FIRST_US, OUT_MAX_US, Flapping
from poe.cluster.members.membership import (
    Down,
    Fenced,
    MemberGone,
    Membership,
    PaceChanged,
    Refused,
    TableChanged,
    Told,
    Up,
)
from poe.cluster.members.table import MEMBERS_MAX, Member, MemberTable, decode_members
from poe.errors import (
    IdentityConflict,
    IncompatibleProtocol,
    NodeAlive,
    NodeForgotten,
    UnknownNode,
)


def peer(number, epoch=1, *, zone="", protocol=1, incarnation=b"i" * 8):
    ref = NodeRef(bytes([number] * 8), epoch)
    return Peer(ref, f"n{number}", zone, protocol, incarnation, f"host{number}:5557")


ME = peer(1)
S = 1_000_000


def state_of(table, node):
    member = table.get(node)
    assert member is not None
    return member.state


members = st.builds(
    Member,
    st.sampled_from([bytes([each] * 8) for each in range(3)]),
    st.sampled_from(["joined", "left", "forgotten"]),
    st.integers(0, 3),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["", "z"]),
    st.just("h:1"),
)
tables = st.lists(members, max_size=8)


# ---- the table --------------------------------------------------------------------------------


@given(tables, tables, tables)
def test_tables_join_into_the_same_in_any_order_and_however_often(a, b, c):
    orders = [(a, b, c), (c, a, b), (b, c, a, a, c), ([*c, *b], a)]
    joined = []
    for order in orders:
        table = MemberTable()
        for each in order:
            table.join(each)
        joined.append(list(table))
    assert all(each == joined[0] for each in joined)


@given(tables, tables)
def test_a_join_tells_exactly_what_it_has_changed(a, b):
    table = MemberTable(a)
    before = {each.id: each for each in table}
    changed = table.join(b)
    after = {each.id: each for each in table}
    assert {each.id: each for each in changed} == {
        node: each for node, each in after.items() if before.get(node) != each
    }
    assert table.join(b) == []


@given(tables)
def test_who_is_forgotten_stays_so_and_who_left_comes_back_in_a_later_life(entries):
    table = MemberTable(entries)
    for each in entries:
        known = table.get(each.id)
        assert known is not None
        assert known.epoch >= each.epoch or known.state == "forgotten"
        if each.state == "forgotten":
            assert known.state == "forgotten"
            table.join([each._replace(state="joined", epoch=9)])
            assert state_of(table, each.id) == "forgotten"
        if known.state == "left":
            table.join([known._replace(state="joined")])
            assert state_of(table, each.id) == "left"
            table.join([known._replace(state="joined", epoch=known.epoch + 1)])
            assert state_of(table, each.id) == "joined"


@given(tables)
def test_a_table_survives_its_encoding(entries):
    table = MemberTable(entries)
    assert decode_members(table.encode()) == list(table)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1],
        [[]],
        [[b"short", "joined", 1, "a", "", ""]],
        [[bytes(8), "dead", 1, "a", "", ""]],
        [[bytes(8), "joined", -1, "a", "", ""]],
        [[bytes(8), "joined", 1 << 60, "a", "", ""]],
        [[bytes(8), "joined", 1, "a" * 513, "", ""]],
        [[bytes(8), "joined", 1, b"a", "", ""]],
        [[bytes(8), "joined", 1, "a", "", ""]] * (MEMBERS_MAX + 1),
    ],
    ids=[
        "none", "number", "empty", "id", "state", "negative", "epoch", "name", "bytes", "many",
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused_as_a_whole(value):
    assert decode_members(value) is None


def test_a_table_is_bounded():
    table = MemberTable(
        Member(number.to_bytes(8), "joined", 1, "a", "", "") for number in range(MEMBERS_MAX + 5)
    )
    assert len(table) == MEMBERS_MAX
    first = Member((0).to_bytes(8), "left", 1, "a", "", "")
    assert table.join([first]) == [first]  # who is in it still changes


def test_of_those_that_have_left_one_makes_room_for_a_node_that_comes():
    left = [Member(number.to_bytes(8), "left", 9 + number, "a", "", "") for number in range(999)]
    table = MemberTable([*left, Member.of(ME)])
    new = Member.of(peer(200))
    assert table.join([new]) == [new]
    assert len(table) == MEMBERS_MAX
    assert table.get(left[0].id) is None
    assert table.join([left[0]]) == []


# ---- flapping ---------------------------------------------------------------------------------


def test_a_node_is_kept_out_for_longer_each_time_and_forgiven_by_time():
    flapping = Flapping()
    outs = [flapping.down(b"n", at * S) for at in range(12)]
    assert outs[:5] == [0, 0, OUT_FIRST_US, 2 * OUT_FIRST_US, 4 * OUT_FIRST_US]
    assert outs[-1] == OUT_MAX_US
    assert outs == sorted(outs)
    assert flapping.is_out(b"n", 12 * S)
    assert not flapping.is_out(b"other", 12 * S)
    until = flapping.next_deadline_us(12 * S)
    assert until is not None
    assert flapping.is_out(b"n", until - 1)
    assert not flapping.is_out(b"n", until)
    assert flapping.next_deadline_us(until) is None
    assert flapping.down(b"n", until + 12 * FORGIVE_US) == 0


@given(st.lists(st.integers(0, 2 * FORGIVE_US), max_size=40))
def test_no_node_is_kept_out_for_longer_than_the_most(gaps):
    flapping, now = Flapping(), 0
    for gap in gaps:
        now += gap
        assert 0 <= flapping.down(b"n", now) <= OUT_MAX_US
    assert not flapping.is_out(b"n", now + OUT_MAX_US)


def test_a_node_that_is_down_for_years_costs_no_time():
    flapping = Flapping()
    for at in range(1000):
        flapping.down(b"n", at)
    assert flapping.down(b"n", 1000) == OUT_MAX_US


# ---- membership -------------------------------------------------------------------------------


def joined(known=()):
    membership = Membership(ME, known)
    membership.join()
    membership.take_effects()
    return membership


def kinds(effects):
    return [type(each) for each in effects if type(each) is not Told]


def test_who_comes_is_told_saved_and_live_and_stays_a_member_when_it_goes():
    nodes = joined()
    nodes.peer_up(peer(2), 0)
    assert kinds(nodes.take_effects()) == [TableChanged, Up]
    nodes.peer_up(peer(2), 0)
    assert nodes.take_effects() == []
    nodes.peer_down(peer(2).ref, "killed", 1)
    assert kinds(nodes.take_effects()) == [Down]
    assert state_of(nodes.table, peer(2).ref.id) == "joined"
    assert nodes.liveness(peer(2).ref.id) == "down"
    nodes.peer_down(peer(2).ref, "killed", 1)
    assert nodes.take_effects() == []


def test_a_later_life_ends_the_one_before_and_a_late_down_of_that_is_nothing():
    nodes = joined()
    nodes.peer_up(peer(2, 5), 0)
    nodes.take_effects()
    nodes.peer_up(peer(2, 6), 1)
    effects = nodes.take_effects()
    assert kinds(effects) == [Down, TableChanged, Up]
    assert effects[0].ref.epoch == 5
    nodes.peer_down(NodeRef(peer(2).ref.id, 5), "lease", 2)
    assert nodes.take_effects() == []
    nodes.peer_up(peer(2, 5), 3)
    (refused,) = nodes.take_effects()
    assert isinstance(refused.error, IdentityConflict)
    assert nodes.live[peer(2).ref.id].ref.epoch == 6


def test_a_node_that_leaves_is_down_and_no_member_until_its_next_life():
    nodes = joined()
    nodes.peer_up(peer(2, 5), 0)
    nodes.take_effects()
    nodes.hear([Member.of(peer(2, 5))._replace(state="left")], 1)
    assert kinds(nodes.take_effects()) == [TableChanged, MemberGone, Down]
    nodes.peer_up(peer(2, 5), 2)  # the fabric sees it a little longer
    assert nodes.take_effects() == []
    nodes.peer_up(peer(2, 6), 3)
    assert kinds(nodes.take_effects()) == [TableChanged, Up]


def test_leaving_is_told_to_all():
    nodes = joined()
    nodes.leave()
    changed = nodes.take_effects()[0]
    assert changed == TableChanged((Member.of(ME)._replace(state="left"),))


def test_the_earlier_life_of_a_copied_folder_leaves():
    nodes = joined()
    nodes.peer_up(peer(1, 0, incarnation=b"x" * 8), 0)
    (refused,) = nodes.take_effects()
    assert isinstance(refused.error, IdentityConflict)
    assert nodes.fenced is None
    nodes.peer_up(peer(1, 2, incarnation=b"x" * 8), 0)
    assert kinds(nodes.take_effects()) == [Fenced]
    assert isinstance(nodes.fenced, IdentityConflict)
    nodes.peer_up(peer(2), 0)
    assert nodes.take_effects() == []
    assert nodes.liveness(ME.ref.id) == "down"


@pytest.mark.parametrize("mine", [b"a" * 8, b"z" * 8], ids=["lower", "higher"])
def test_of_twins_of_one_epoch_exactly_one_leaves(mine):
    other = peer(1, incarnation=b"m" * 8)
    nodes = Membership(ME._replace(incarnation=mine))
    nodes.join()
    nodes.peer_up(other, 0)
    assert (nodes.fenced is not None) == (mine < other.incarnation)


def test_one_that_sees_both_twins_takes_the_later_one_in_any_order():
    early, late = peer(2, incarnation=b"a" * 8), peer(2, incarnation=b"b" * 8)
    for order in ([early, late], [late, early]):
        nodes = joined()
        for each in order:
            nodes.peer_up(each, 0)
        assert nodes.live[early.ref.id] == late


def test_a_node_sees_itself_and_thinks_nothing_of_it():
    nodes = joined()
    nodes.peer_up(ME, 0)
    assert nodes.take_effects() == []


def test_an_older_protocol_is_refused_by_name():
    nodes = joined()
    nodes.peer_up(peer(2, protocol=0), 0)
    (refused,) = nodes.take_effects()
    assert isinstance(refused, Refused)
    assert isinstance(refused.error, IncompatibleProtocol)
    assert nodes.live == {}


def test_a_newer_protocol_is_a_peer():
    nodes = joined()
    nodes.peer_up(peer(2, protocol=7), 0)
    assert nodes.liveness(peer(2).ref.id) == "live"


def test_who_is_forgotten_is_refused_and_learns_it():
    nodes, other = joined(), Membership(peer(2))
    other.join()
    nodes.hear([Member.of(peer(2))], 0)
    nodes.take_effects()
    assert nodes.forget("n2", 0).state == "forgotten"
    assert kinds(nodes.take_effects()) == [TableChanged, MemberGone]
    nodes.peer_up(peer(2, 9), 0)
    (refused,) = nodes.take_effects()
    assert isinstance(refused.error, NodeForgotten)
    other.take_effects()
    other.hear(nodes.table, 0)
    assert isinstance(other.fenced, NodeForgotten)
    assert Fenced in kinds(other.take_effects())


def test_a_node_that_was_forgotten_does_not_join_again():
    nodes = Membership(ME, [Member.of(ME)._replace(state="forgotten")])
    nodes.join()
    assert kinds(nodes.take_effects()) == [Fenced]


def test_forgetting_elsewhere_ends_a_node_that_lives_here():
    nodes = joined()
    nodes.peer_up(peer(2), 0)
    nodes.take_effects()
    nodes.hear([Member.of(peer(2))._replace(state="forgotten")], 0)
    assert kinds(nodes.take_effects()) == [TableChanged, MemberGone, Down, Refused]


def test_who_lives_and_who_is_not_known_cannot_be_forgotten():
    nodes = joined()
    nodes.peer_up(peer(2), 0)
    for name in ("n1", "n2", peer(2).ref.id.hex()[:4]):
        with pytest.raises(NodeAlive):
            nodes.forget(name, 0)
    nodes.hear(
        [Member.of(peer(3))._replace(name="twin"), Member.of(peer(4))._replace(name="twin")], 0
    )
    for name in ("n9", "", "twin"):
        with pytest.raises(UnknownNode):
            nodes.forget(name, 0)
    assert nodes.forget("0303", 0).id == peer(3).ref.id


def test_who_came_in_anew_is_meant_by_the_name_that_its_forgotten_self_had_too():
    nodes = joined()
    forgotten = Member.of(peer(3))._replace(name="twin", state="forgotten")
    nodes.hear([forgotten, Member.of(peer(4))._replace(name="twin")], 0)
    assert nodes.forget("twin", 0).id == peer(4).ref.id
    with pytest.raises(UnknownNode, match="more than one"):
        nodes.forget("twin", 0)


def test_a_name_means_its_node_even_where_the_id_of_another_one_begins_so():
    nodes = joined()
    nodes.hear([Member.of(peer(3))._replace(name="04"), Member.of(peer(4))], 0)
    assert [each.id for each in nodes.table.find("04")] == [peer(3).ref.id]
    assert nodes.forget("04", 0).id == peer(3).ref.id
    assert [each.id for each in nodes.table.find("0404")] == [peer(4).ref.id]


def test_what_may_be_a_name_that_nobody_has_is_no_id_of_another_node():
    nodes = joined()
    nodes.hear([Member.of(peer(3))], 0)
    assert nodes.table.find("030") == []
    with pytest.raises(UnknownNode):
        nodes.forget("0", 0)


def test_a_node_that_flaps_is_kept_out_of_choices_for_a_while():
    nodes = joined()
    for at in range(3):
        nodes.peer_up(peer(2), at)
        nodes.peer_down(peer(2).ref, "lease", at)
    assert [each.kind for each in nodes.take_effects() if type(each) is Told][-1] == "node_kept_out"
    nodes.peer_up(peer(2), 10)
    assert PaceChanged(peer(2).ref, "out") in nodes.take_effects()
    assert nodes.liveness(peer(2).ref.id) == "out"
    nodes.tick(11)
    assert nodes.take_effects() == []
    nodes.tick(nodes.next_deadline_us(11))
    assert nodes.take_effects() == [PaceChanged(peer(2).ref, "ok")]


def test_a_slow_node_is_told_once_and_again_when_it_is_not():
    nodes = joined()
    nodes.peer_up(peer(2), 0)
    nodes.take_effects()
    for is_slow in (True, True, False, False):
        nodes.peer_pace(peer(2).ref, 0, is_slow=is_slow)
    assert nodes.take_effects() == [
        PaceChanged(peer(2).ref, "slow"),
        PaceChanged(peer(2).ref, "ok"),
    ]
    nodes.peer_pace(peer(7).ref, 0, is_slow=True)
    assert nodes.take_effects() == []


def test_a_life_greater_than_this_one_under_its_id_fences_it():
    nodes = joined()
    nodes.hear([Member.of(peer(1, 5))], 0)
    assert isinstance(nodes.fenced, IdentityConflict)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["up", "down", "slow", "ok", "hear", "tick"]),
            st.integers(1, 3),
            st.integers(1, 3),
            members,
        ),
        max_size=30,
    )
)
def test_whatever_happens_live_nodes_are_joined_and_ups_and_downs_alternate(steps):
    nodes = Membership(ME._replace(ref=NodeRef(ME.ref.id, 4)))
    nodes.join()
    live = set()
    for at, (what, number, epoch, member) in enumerate(steps):
        now = at * S
        each = peer(number, epoch)
        if what == "up":
            nodes.peer_up(each, now)
        elif what == "down":
            nodes.peer_down(each.ref, "cut", now)
        elif what == "hear":
            nodes.hear([member._replace(id=peer(number).ref.id)], now)
        elif what == "tick":
            nodes.tick(now)
        else:
            nodes.peer_pace(each.ref, now, is_slow=what == "slow")
        for effect in nodes.take_effects():
            if type(effect) is Up:
                assert effect.peer.ref not in live
                live.add(effect.peer.ref)
            elif type(effect) is Down:
                live.remove(effect.ref)
        assert live == {one.ref for one in nodes.live.values()}
        for ref in live:
            known = nodes.table.get(ref.id)
            assert known is not None
            assert known.state == "joined" or known.epoch < ref.epoch
