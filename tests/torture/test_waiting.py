"""What other programs of a machine take from a server's time is told from what it takes itself."""

import pytest

from torture.server import kept_waiting_ns


@pytest.mark.parametrize(
    ("threads", "waited_ns"),
    [
        ([], 0),
        ([(900, 300)], 300),
        ([(5, 800), (900, 300)], 295),  # the one that waited longest did little
        ([(900, 300), (700, 600)], 0),  # they took turns
    ],
)
def test_of_what_a_program_waits_for_its_own_threads_are_no_excuse(threads, waited_ns):
    assert kept_waiting_ns(threads) == waited_ns
