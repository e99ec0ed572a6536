"""The first table: ratios are taken round by round, and servers that are missing leave a dash."""

from bench.row import Summary
from bench.scenarios import POE, Scenario
from bench.sockets import Outcome

SCENARIO = Scenario("write", "write", 1, 100, {"limit": 0.5, "redis": 2.0})


def outcome(**rates):
    return Outcome(SCENARIO, {server: Summary(values) for server, values in rates.items()})


def test_a_ratio_is_the_median_of_the_ratios_and_not_the_ratio_of_medians():
    # The machine was three times as slow in two of three rounds, for both alike or not.
    found = outcome(poe=(3e6, 1e6, 1e6), limit=(6e6, 2e6, 6e6))
    ratio = found.ratio("limit")
    assert ratio is not None
    assert ratio.median == 0.5
    assert found.met()


def test_a_slow_stretch_of_the_machine_leaves_ratios_alone():
    found = outcome(poe=(4e6, 2e6, 1e6), limit=(8e6, 4e6, 2e6))
    assert found.as_table_line() == (
        "| write | 2.00 M (1.00 … 4.00) | 4.00 M (2.00 … 8.00); **0.50 ×** (0.50 … 0.50) "
        "| – | – | 3 | ≥ 0.5 × limit, ≥ 2.0 × redis | yes |"
    )


def test_a_ratio_below_its_bar_is_told_even_where_others_are_above():
    assert not outcome(poe=(1e6,), limit=(1e6,), redis=(1e6,)).met()


def test_without_the_other_servers_nothing_is_missed():
    found = outcome(poe=(1e6,))
    assert found.met()
    assert found.ratio(POE) is not None
    assert found.ratio("nats") is None
