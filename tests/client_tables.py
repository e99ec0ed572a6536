"""Writes tables of the documents of clients from the code: options and the like.

`python -m tests.client_tables` renews them; a test compares them.
"""

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import griffe

from poe.broker.groups.options import GroupOptions
from poe.client.consumer.source import ConsumerOptions
from poe.client.group.queue_options import QueueOptions
from poe.client.group.worker import WorkerOptions
from poe.client.metrics.metrics import COUNTERS, GAUGES, HISTOGRAMS
from poe.client.producer.callbacks import Event
from poe.client.producer.producer_options import ProducerOptions, TopicOptions
from poe.option import allowed

ROOT = Path(__file__).parent.parent
PRODUCER, CONSUMER = ROOT / "docs" / "producer.md", ROOT / "docs" / "consumer.md"
GROUPS = ROOT / "docs" / "groups.md"
DOCUMENTS = (PRODUCER, CONSUMER, GROUPS)


@cache
def tables() -> dict[Path, dict[str, str]]:
    """Each table by its document and the name in its marks."""
    events = _class(Event).attributes
    producer = {
        "topic options": _options(TopicOptions),
        "options": _options(ProducerOptions),
        "callbacks": _table(
            "event | when, and what `extra` is",
            (f"`{str(each.value)[1:-1]}` | {_text(each)}" for each in events.values()),
        ),
        "metrics": _table("metric | what", _metrics(COUNTERS, GAUGES, HISTOGRAMS)),
    }
    groups = {
        "queue options": _options(QueueOptions),
        "worker options": _options(WorkerOptions),
        "group options": _options(GroupOptions),
    }
    consumer = {"options": _options(ConsumerOptions)}
    return {PRODUCER: producer, CONSUMER: consumer, GROUPS: groups}


def renewed(path: Path) -> str:
    """The document with its tables as they should be."""
    document = path.read_text()
    for name, table in tables()[path].items():
        head, begin, rest = document.partition(f"<!-- begin: {name} -->\n")
        _, end, tail = rest.partition("<!-- end -->\n")
        assert end, f"the document has no place for the table of {name}"
        document = f"{head}{begin}{table}{end}{tail}"
    return document


def _table(head: str, rows: Iterable[str]) -> str:
    line = "|".join("---" for _ in head.split("|"))
    return "".join(f"| {row} |\n" for row in (head, *rows)).replace("\n", f"\n|{line}|\n", 1)


def _class(kind: type) -> griffe.Class:
    """What the source of a class says; to read all of the package takes three seconds."""
    path = Path(inspect.getfile(kind))
    found: griffe.Class = griffe.visit(path.stem, path, path.read_text())[kind.__name__]
    return found


def _options(kind: type) -> str:
    rows = []
    for name, each in _class(kind).attributes.items():
        may_be = allowed(kind).get(name)
        if may_be is not None and name != "topics":  # those are the options of topics
            choices = " or ".join(f"`{choice!r}`" for choice in may_be.choices)
            default = re.sub(r"^field\(default_factory=(\w+)\)$", r"\1()", str(each.value))
            rows.append(
                f"`{name}` | {choices or may_be.words('`None`')} | `{default}` | {_text(each)}"
            )
    return _table("option | allowed | default | what", rows)


def _metrics(*kinds: Mapping[str, str]) -> Iterator[str]:
    for kind in kinds:
        yield from (f"`{name}` | {text}" for name, text in kind.items())


def _text(attribute: griffe.Object) -> str:
    assert attribute.docstring is not None, attribute.path
    return " ".join(attribute.docstring.value.split())


def main() -> None:
    """Renew the tables."""
    for path in DOCUMENTS:
        path.write_text(renewed(path))


if __name__ == "__main__":
    main()
