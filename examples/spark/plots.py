"""Draws what the two pipelines have written as Parquet; needs the extra `examples`.

usage: python examples/spark/plots.py FOLDER_OF_PARQUET FOLDER_OF_PNG
"""

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # draws into files; needs no screen

import pandas as pd
from matplotlib import dates
from matplotlib import pyplot as plt

GREY, RED, BLUE = "#9aa0a6", "#c0392b", "#2c6fbb"


def draw_failed_logins(table: pd.DataFrame, file: Path) -> None:
    """Draw a dot for each address and ten minutes, as large as it has failures; attacks in red."""
    table = table.sort_values("begins")
    firsts = table.drop_duplicates("address")["address"].tolist()
    figure, axes = plt.subplots(figsize=(8, 0.22 * len(firsts) + 1.2))
    colours = table["is_attack"].map({True: RED, False: GREY})
    rows = table["address"].map(firsts.index)
    axes.scatter(table["begins"], rows, s=4 * table["failed"].clip(3), c=colours, alpha=0.8)
    for attack in table[table["is_attack"]].itertuples():
        place = (attack.begins, firsts.index(attack.address))
        axes.annotate(str(attack.failed), place, ha="center", va="center", size=7)
    axes.set_yticks(range(len(firsts)), firsts, size=7)
    axes.set_title("Failed log-ins in ten minutes; red: 20 or more, on topic alerts", size=10)
    save(figure, axes, file)


def draw_bad_hours(table: pd.DataFrame, file: Path) -> None:
    """Draw failed log-ins and errors of the web server side by side for each hour."""
    figure, axes = plt.subplots(figsize=(8, 3))
    quarter = pd.Timedelta(minutes=15)
    width = 2 * quarter / pd.Timedelta(days=1)
    middle = table["begins"] + 2 * quarter
    axes.bar(middle - quarter, table["failed_logins"], width, color=RED, label="failed log-ins")
    axes.bar(middle + quarter, table["web_errors"], width, color=BLUE, label="web server's errors")
    axes.legend(frameon=False, fontsize=8)
    axes.set_title("Hours of which both logs tell", size=10)
    save(figure, axes, file)


def save(figure: plt.Figure, axes: plt.Axes, file: Path) -> None:
    """Write a small PNG."""
    axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    # Without a date and a version in it, the same data gives the same file.
    figure.savefig(file, dpi=90, metadata={"Software": None})
    plt.close(figure)


def main() -> None:
    """Draw both."""
    tables, pictures = map(Path, sys.argv[1:])
    for name, draw in (("failed_logins", draw_failed_logins), ("bad_hours", draw_bad_hours)):
        table = pd.read_parquet(tables / f"{name}.parquet")
        draw(table, pictures / f"{name}.png")
        print(f"{name}.png")


if __name__ == "__main__":
    main()
