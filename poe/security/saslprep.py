"""SASLprep (RFC 4013): one form for the names and passwords that people type differently."""

import stringprep
from unicodedata import ucd_3_2_0 as unicode_3_2

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,
)


def saslprep(text: str) -> str | None:
    """Return the text in its one form; None: it has none, as with control characters.

    Characters that Unicode 3.2 did not know yet have none either.
    """
    if text.isascii() and text.isprintable():
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each
        for each in text
        if not stringprep.in_table_b1(each)
    )
    found = unicode_3_2.normalize("NFKC", mapped)
    # Each character once: of one NFKC makes up to 18, and a stranger may send hundreds.
    characters = set(found)
    if any(is_prohibited(each) for each in characters for is_prohibited in _PROHIBITED):
        return None
    if any(map(stringprep.in_table_d1, characters)):
        # What is written from right to left begins and ends so, with nothing of the other kind.
        ends_so = stringprep.in_table_d1(found[0]) and stringprep.in_table_d1(found[-1])
        if not ends_so or any(map(stringprep.in_table_d2, characters)):
            return None
    return found
