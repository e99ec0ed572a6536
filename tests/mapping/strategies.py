"""Documents, patterns and rules, as Hypothesis makes them."""

from hypothesis import strategies as st

NAMES = st.sampled_from(["type", "amount", "user", "in", "tags", 'ä"\\'])
TEXTS = st.sampled_from(["", "a", "order", "DE", 'ä"\\', "ab\u2028", "\U0001f600"])
NUMBERS = st.sampled_from([0, 1, 100, 2**53 + 1, -(2**63), 1.0, 0.5, 1e300])
SCALARS = TEXTS | NUMBERS | st.booleans() | st.none()
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


def _operators(patterns):
    ordered = TEXTS | NUMBERS
    return st.one_of(
        st.fixed_dictionaries(
            {},
            optional={
                "gt": ordered,
                "le": ordered,
                "prefix": TEXTS,
                "contains": TEXTS,
                "ne": DOCUMENTS,
            },
        ).filter(bool),
        st.builds(lambda each: {"eq": each}, DOCUMENTS),
        st.builds(lambda each: {"in": each}, st.lists(SCALARS, min_size=1, max_size=3)),
        st.builds(lambda each: {"regex": each}, st.sampled_from(["", "^a", "(o|r)+d", "ä"])),
        st.builds(lambda each: {"exists": each}, st.booleans()),
        st.builds(
            lambda name, each: {name: each}, st.sampled_from(["any", "all", "not"]), patterns
        ),
    )


def _fields(patterns):
    names = NAMES.map(lambda name: f".{name}" if name == "in" else name)
    return st.dictionaries(names, patterns, max_size=3)


PATTERNS = st.recursive(
    SCALARS,
    lambda inner: _operators(inner) | _fields(inner) | st.lists(inner, min_size=1, max_size=3),
    max_leaves=6,
)
FIELDS = _fields(PATTERNS)
"""Patterns of maps."""
