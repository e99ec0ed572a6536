"""Who may do what: against a decision that is obvious, and what must hold of any grants."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import OptionError
from poe.security.policy import GROUP, NODE, OPERATIONS, TOPIC, Grant, Policy, resource_text

ALICE = "alice"
NAMED = ("read", "write", "create", "delete", "describe")


def grant(*operations, principals=(ALICE,), **names):
    return Grant(principals=principals, operations=operations, **names)


def may(grants, operation, name=b"", kind=TOPIC, principal=ALICE):
    return Policy(grants).may(principal, operation, kind, name)


# --- A decision that is obvious ----------------------------------------------------------------


def covers(grant, kind, name):
    if kind == GROUP:
        return name in grant.groups or any(map(name.startswith, grant.group_prefixes))
    parent, _, number = name.rpartition(b"-")
    is_part = number == b"0" or (number.isdigit() and number[:1] != b"0" and len(number) <= 4)
    prefixes = [each for each in grant.prefixes if name[:4] != b"poe." or each[:4] == b"poe."]
    is_named = name in grant.topics or (is_part and parent in grant.topics)
    return is_named or any(map(name.startswith, prefixes))


def reference(grants, principal, operation, kind, name):
    for grant in grants:
        is_implied = operation == "describe" and {"read", "write"} & {*grant.operations}
        if (
            {principal, "*"} & {*grant.principals}
            and (operation in grant.operations or is_implied)
            and ((operation in {"admin", "authorize"}) == (kind == NODE))
            and (kind == NODE or covers(grant, kind, name))
        ):
            return True
    return principal == "poe.admin"


PARTS = st.sampled_from([b"", b"a", b"poe.", b"poe", b"-0", b"-1", b"-01", b"-12345", b".", b"-"])
NAMES = st.lists(PARTS, max_size=4).map(b"".join)
LITERALS = st.lists(NAMES.filter(bool), max_size=3).map(tuple)
PREFIXES = st.lists(NAMES, max_size=2).map(tuple)
PRINCIPALS = st.sampled_from([ALICE, "bob", "*"])
SOME = st.lists(PRINCIPALS, min_size=1, max_size=2).map(tuple)
OF_NAMES = st.builds(
    Grant,
    principals=SOME,
    operations=st.lists(st.sampled_from(NAMED), min_size=1, max_size=3).map(tuple),
    topics=LITERALS.map(lambda names: names or (b"orders",)),
    prefixes=PREFIXES,
    groups=LITERALS,
    group_prefixes=PREFIXES,
)
OF_NODE = st.builds(
    Grant,
    principals=SOME,
    operations=st.sampled_from([("admin",), ("authorize",), ("admin", "authorize")]),
)
GRANTS = st.lists(OF_NAMES | OF_NODE, max_size=4)
QUESTION = st.tuples(
    st.sampled_from([ALICE, "bob", "carol", "poe.admin"]),
    st.sampled_from(OPERATIONS),
    st.sampled_from([TOPIC, GROUP, NODE]),
    NAMES,
)


@given(GRANTS, QUESTION)
def test_a_decision_is_that_of_the_reference(grants, question):
    if question[2] == NODE:
        question = (*question[:3], b"")
    assert Policy(grants).may(*question) == reference(grants, *question)


@given(GRANTS, GRANTS, QUESTION)
def test_another_grant_takes_no_permission_away(grants, more, question):
    if Policy(grants).may(*question):
        assert Policy([*grants, *more]).may(*question)
        assert Policy([*more, *grants]).may(*question)


@given(QUESTION)
def test_no_grant_is_no_permission(question):
    assert Policy().may(*question) == (question[0] == "poe.admin")


@given(GRANTS, QUESTION)
def test_who_may_read_or_write_something_may_know_of_it(grants, question):
    principal, _, kind, name = question
    policy = Policy(grants)
    if policy.may(principal, "read", kind, name) or policy.may(principal, "write", kind, name):
        assert policy.may(principal, "describe", kind, name)


@given(GRANTS, QUESTION)
def test_an_explanation_is_the_decision(grants, question):
    decision = Policy(grants).explain(*question)
    assert decision.allowed == Policy(grants).may(*question)
    if decision.grant is not None:
        assert Policy([grants[decision.grant]]).may(*question)
        assert not Policy(grants[: decision.grant]).may(*question)


# --- One sentence of the rules each ------------------------------------------------------------


def test_a_literal_covers_the_topic_and_its_partitions_and_nothing_else():
    grants = [grant("read", topics=(b"orders",))]
    for name in (b"orders", b"orders-0", b"orders-1023"):
        assert may(grants, "read", name)
    for name in (b"order", b"orders2", b"orders-", b"orders-00", b"orders-x", b"orders-0-1", b""):
        assert not may(grants, "read", name)


def test_names_are_bytes_and_are_not_folded():
    grants = [grant("read", topics=("bücher".encode(),), prefixes=(b"team.",))]
    assert may(grants, "read", "bücher".encode())
    assert not may(grants, "read", "BÜCHER".encode())
    assert not may(grants, "read", "bu\u0308cher".encode())
    assert not may(grants, "read", b"Team.a")
    assert not may(grants, "read", b"teamXa")


def test_an_empty_prefix_covers_all_but_what_is_reserved():
    grants = [grant("read", prefixes=(b"",))]
    assert may(grants, "read", b"orders")
    assert may(grants, "read", b"poe")
    assert not may(grants, "read", b"poe.groups")
    assert not may([grant("read", prefixes=(b"poe",))], "read", b"poe.groups")
    assert may([grant("read", prefixes=(b"poe.",))], "read", b"poe.groups")
    assert may([grant("read", topics=(b"poe.groups",))], "read", b"poe.groups")


def test_a_prefix_of_reserved_names_covers_those_it_begins_alone():
    grants = [grant("write", prefixes=(b"poe.staging.",))]
    assert may(grants, "write", b"poe.staging.1")
    assert not may(grants, "write", b"poe.groups")


def test_groups_are_covered_by_their_own_names_alone():
    grants = [grant("read", topics=(b"a",), groups=(b"g",), group_prefixes=(b"poe.",))]
    assert may(grants, "read", b"g", GROUP)
    assert may(grants, "read", b"poe.x", GROUP)
    assert not may(grants, "read", b"a", GROUP)
    assert not may(grants, "read", b"g")
    assert not may(grants, "read", b"g-0", GROUP)


def test_an_empty_group_prefix_covers_all_groups():
    assert may([grant("read", group_prefixes=(b"",))], "read", b"poe.x", GROUP)


def test_admin_allows_nothing_on_topics():
    policy = Policy([grant("admin")])
    assert policy.may(ALICE, "admin", NODE)
    assert not policy.may(ALICE, "authorize", NODE)
    assert not any(policy.may(ALICE, each, TOPIC, b"a") for each in OPERATIONS)


def test_who_may_everything_with_topics_may_nothing_with_the_node():
    policy = Policy([grant(*NAMED, prefixes=(b"",), group_prefixes=(b"",))])
    assert not policy.may(ALICE, "admin", NODE)
    assert not policy.may(ALICE, "read", NODE)


@pytest.mark.parametrize("operation", ["create", "delete", "describe"])
def test_only_reading_and_writing_imply_anything(operation):
    grants = [grant(operation, topics=(b"a",))]
    assert [each for each in OPERATIONS if may(grants, each, b"a")] == [operation]


@pytest.mark.parametrize("operation", ["read", "write"])
def test_reading_and_writing_imply_knowing_of_it(operation):
    grants = [grant(operation, topics=(b"a",), groups=(b"g",))]
    assert [each for each in OPERATIONS if may(grants, each, b"a")] == [operation, "describe"]
    assert [each for each in OPERATIONS if may(grants, each, b"g", GROUP)] == [
        operation,
        "describe",
    ]


def test_what_several_grants_name_adds_up():
    grants = [
        grant("read", topics=(b"a",), prefixes=(b"b.",), groups=(b"c",), group_prefixes=(b"d.",)),
        grant("read", topics=(b"e",), prefixes=(b"f.",), groups=(b"g",), group_prefixes=(b"h.",)),
    ]
    for name, kind in ((b"a", TOPIC), (b"b.", TOPIC), (b"c", GROUP), (b"d.", GROUP)):
        assert may(grants[:1], "read", name, kind)
        assert may(grants, "read", name, kind)
        assert may(grants[::-1], "read", name, kind)
        assert not may(grants[1:], "read", name, kind)


def test_the_node_has_no_name():
    assert Policy([grant("admin")]).may(ALICE, "admin", NODE, b"")
    assert Policy([grant("admin")]).explain(ALICE, "admin", NODE).allowed


def test_an_answer_is_yes_or_no():
    assert may([grant("read", topics=(b"a",))], "read", b"a") is True
    assert may([], "read", b"a") is False


def test_a_star_is_whoever_has_authenticated():
    grants = [grant("read", principals=("*",), topics=(b"news",))]
    assert may(grants, "read", b"news", principal="anybody")


def test_who_is_named_has_what_everybody_has_too():
    grants = [
        grant("read", principals=("*",), topics=(b"news",)),
        grant("read", topics=(b"orders",)),
    ]
    assert may(grants, "read", b"news")
    assert not may(grants, "read", b"orders", principal="bob")


def test_the_local_administrator_needs_no_grant():
    assert Policy().may("poe.admin", "delete", TOPIC, b"a")
    assert Policy().explain("poe.admin", "admin", NODE) == (
        True,
        None,
        "poe.admin may admin the node: the local administrator",
    )


def test_what_is_no_operation_or_no_kind_is_never_allowed():
    policy = Policy([grant(*NAMED, prefixes=(b"",))])
    assert not policy.may(ALICE, "own", TOPIC, b"a")
    assert not policy.may(ALICE, "read", "folder", b"a")


def test_an_explanation_names_the_grant_as_people_count():
    policy = Policy([grant("read", topics=(b"a",)), grant("write", topics=(b"a",))])
    assert policy.explain(ALICE, "write", TOPIC, b"a") == (
        True,
        1,
        "alice may write topic 'a': by grant 2",
    )
    assert policy.explain(ALICE, "delete", TOPIC, b"a") == (
        False,
        None,
        "alice may not delete topic 'a': no grant allows it",
    )


def test_a_resource_is_named_as_people_read_it():
    assert resource_text(TOPIC, b"a\nb") == r"topic 'a\nb'"
    assert resource_text(GROUP, b"g") == "group 'g'"
    assert resource_text(NODE, b"") == "the node"


SOME_OPERATIONS = "some of read, write, create, delete, describe, admin, authorize"
SOME_USERS = "names of users (1 to 200 of A-Z a-z 0-9 . _ @ -, not beginning with 'poe.'), or \"*\""
OWN = "it in a grant of its own, without names"
SOME_NAMES = "topics, prefixes, groups or group_prefixes"
NO_NAME = 'names; for all, an empty prefix: [""]'


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"principals": ()}, f"option 'principals' is []; use {SOME_USERS}"),
        ({"principals": (ALICE, "")}, f"option 'principals' is ''; use {SOME_USERS}"),
        ({"principals": ("al ice",)}, f"option 'principals' is 'al ice'; use {SOME_USERS}"),
        ({"principals": ("poe.admin",)}, f"option 'principals' is 'poe.admin'; use {SOME_USERS}"),
        ({"operations": ()}, f"option 'operations' is []; use {SOME_OPERATIONS}"),
        ({"operations": ("read", "own")}, f"option 'operations' is 'own'; use {SOME_OPERATIONS}"),
        ({"topics": ()}, f"option 'topics' is []; use {SOME_NAMES}"),
        ({"topics": (b"a", b"")}, f"option 'topics' is ''; use {NO_NAME}"),
        ({"groups": (b"",)}, f"option 'groups' is ''; use {NO_NAME}"),
        ({"operations": ("admin",)}, f"option 'operations' is 'admin'; use {OWN}"),
        (
            {"operations": ("authorize", "read"), "topics": ()},
            f"option 'operations' is 'authorize'; use {OWN}",
        ),
    ],
)
def test_a_grant_that_does_nothing_or_seems_to_do_more_is_refused(values, sentence):
    whole = {"principals": (ALICE,), "operations": ("read",), "topics": (b"a",)}
    with pytest.raises(OptionError) as caught:
        Grant(**(whole | values))
    assert str(caught.value) == sentence


def test_a_grant_may_name_things_twice():
    Grant(principals=(ALICE, ALICE), operations=("admin", "admin"))


@pytest.mark.parametrize("key", ["prefixes", "groups", "group_prefixes"])
def test_a_grant_of_the_node_has_no_names_of_any_kind(key):
    with pytest.raises(OptionError, match="a grant of its own"):
        Grant(principals=(ALICE,), operations=("authorize",), **{key: (b"a",)})


@pytest.mark.parametrize("key", ["topics", "prefixes", "groups", "group_prefixes"])
def test_a_grant_with_names_of_one_kind_is_one(key):
    Grant(principals=(ALICE,), operations=("read",), **{key: (b"a",)})
