"""What is wrong in a file is found at its line, however the file is laid out."""

import tomllib
from contextlib import suppress
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poe.errors import SecurityFileError
from poe.toml_document import Place, TomlDocument


def line_of(text, place):
    with pytest.raises(SecurityFileError) as caught:
        TomlDocument(text, "users.toml").refuse(place, "wrong")
    return caught.value.line


LAID_OUT = '''\
# [users.bob] in a comment, and """ in it
version = 1
[users.alice]
text = """
[users.bob]
]]] { "
"""  # an end
other = \'\'\'
a = 1 \'\'\'
many = [
    "x", # ]
    'y"',
]

  [users.bob]
"quoted key" = { a = 1, b = [2, 3] }
[[grants]]
a = 1
[[grants]]
b.c = "\\"#["
'''


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("version",), 2),
        (("users",), 3),
        (("users", "alice"), 3),
        (("users", "alice", "text"), 4),
        (("users", "alice", "other"), 8),
        (("users", "alice", "many"), 10),
        (("users", "alice", "many", 1), 10),
        (("users", "bob"), 15),
        (("users", "bob", "quoted key", "b", 1), 16),
        (("grants", 0), 17),
        (("grants", 0, "a"), 18),
        (("grants", 1), 19),
        (("grants", 1, "b", "c"), 20),
        (("grants", 1, "missing", "deeper"), 19),
        (("missing",), None),
        ((), None),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_value_is_found_at_the_line_where_its_statement_begins(place, line, end):
    assert line_of(LAID_OUT.replace("\n", end), place) == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = 1\nb = \n", 2),
        ("a = 1\na = 2\n", 2),
        ("a = 1\n[a]\n", 2),
        ("a = [\n1,\n", 3),
        ('a = "', 1),
        ("a = 1\nb = 1979-13-01\n", 2),
        ("a = " + "9" * 5000, 1),
        ("a = " + "[" * 100_000, None),
    ],
)
def test_what_is_no_toml_is_refused_with_its_line(text, line):
    with pytest.raises(SecurityFileError) as caught:
        TomlDocument(text, "users.toml")
    assert caught.value.line == line
    assert "at line" not in caught.value.why


STRINGS = ['"a"', "'a'", '"""\n\\"#[\n"""', "'''\n\"[\n'''", '""""""', "''''''", '"""a""\n"""""']
VALUES = st.recursive(
    st.sampled_from(["1", "true", "1979-05-27T07:32:00Z", *STRINGS]),
    lambda values: st.lists(values, max_size=3).map(lambda each: "[\n" + ",#]\n".join(each) + "]"),
    max_leaves=5,
)
LINES = st.lists(st.sampled_from(["", "# [ '''", "  "]) | VALUES, max_size=8)


HEADS = ["[[rule]]", ' [[ "rule" ]] # [', '[["r\\u0075le"]]', "[[test]]"]
BODIES = ["", "# [[rule]]\n", "a = [\n[[1]]\n]\n", "b.a = 1\na = 2\n", "[other.a]\na = 1\n"]


@given(st.lists(st.tuples(st.sampled_from(HEADS), st.sampled_from(BODIES)), max_size=6))
def test_each_of_many_tables_is_found_at_its_line(tables):
    text, counts = "[other]\n", {"rule": 0, "test": 0}
    expected: dict[Place, int] = {}
    for head, body in tables:
        name = "test" if "test" in head else "rule"
        place = name, counts[name]
        counts[name] += 1
        expected[place] = text.count("\n") + 1
        text += head + "\n"
        if "other" in body:
            body = body.replace("other.a", f"{name}.b")  # noqa: PLW2901 - its table within
            expected[*place, "b", "a"] = text.count("\n") + 2
        elif "a = " in body:
            expected[*place, "a"] = text.count("\n") + 1 + body.startswith("b")
        text += body
    document = TomlDocument(text, "m.toml")
    assert {place: document.line_of(place) for place in expected} == expected


@pytest.mark.parametrize(
    "text",
    ["[[rule]]\nid = 1\n" * 300, "rule = [\n" + "{ id = 1 },\n" * 300 + "]\n"],
    ids=["tables", "a list"],
)
def test_the_lines_of_all_tables_are_found_in_a_few_readings(text, monkeypatch):
    document = TomlDocument(text, "m.toml")
    counted = mock.Mock(wraps=tomllib.loads)
    monkeypatch.setattr(tomllib, "loads", counted)
    lines = [document.line_of(("rule", number, "id")) for number in range(300)]
    assert lines == ([1] * 300 if "{" in text else list(range(2, 602, 2)))
    assert sum(len(each.args[0]) for each in counted.call_args_list) < 10 * len(text)


@given(LINES)
def test_each_of_many_values_is_found_at_its_line(lines):
    text, expected = "", {}
    for number, line in enumerate(lines):
        if line.strip() and not line.startswith("#"):
            expected[f"k{number}"] = text.count("\n") + 1
            text += f"k{number} = "
        text += line + "\n"
    assert {key: line_of(text, (key,)) for key in expected} == expected


@given(st.text(max_size=60) | st.text(alphabet="[]{}\"'=#.\\\n ab1", max_size=60))
def test_any_text_is_toml_or_is_refused(text):
    with suppress(SecurityFileError):
        TomlDocument(text, "users.toml")
