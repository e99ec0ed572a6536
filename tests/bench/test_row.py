"""Rounds become rows: medians, spreads and what a bar says of them."""

import pytest

from bench.row import Sample, Summary, as_figure, rows_of


def rounds(*values, make=Sample.at_least, bar=3):
    return [[make("rate", value, "/ s", bar)] for value in values]


def test_a_row_is_the_median_of_its_rounds_with_the_least_and_the_greatest():
    (row,) = rows_of(rounds(5, 1, 4, 2, 9))
    assert row.as_table_line() == "| rate | 4 / s | 1 … 9 | 5 | ≥ 3 | yes |"


def test_the_median_is_held_against_the_bar_and_not_the_best_round():
    assert not rows_of(rounds(9, 1, 2))[0].met
    assert rows_of(rounds(9, 1, 2, make=Sample.at_most))[0].met
    assert not rows_of(rounds(9, 1, 4, make=Sample.at_most))[0].met


def test_a_bar_that_is_just_reached_is_met():
    assert rows_of(rounds(3))[0].met
    assert rows_of(rounds(3, make=Sample.at_most))[0].met


def test_rows_keep_the_order_of_the_first_round():
    one_round = [Sample.at_least(name, 1, "×", 1) for name in ("b", "a")]
    assert [row.measure for row in rows_of([one_round, one_round])] == ["b", "a"]


def test_without_a_round_there_is_no_row():
    assert rows_of([]) == []


def test_an_even_number_of_rounds_has_the_mean_of_the_middle_two():
    assert Summary((1, 2, 3, 10)).median == 2.5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2_682_345, "2,682,000"),
        (999.96, "1,000"),
        (0.12344, "0.1234"),
        (12, "12"),
        (454.83, "454.8"),
    ],
)
def test_a_figure_has_four_digits_that_mean_something(value, text):
    assert as_figure(value) == text
