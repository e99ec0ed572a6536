"""A dry run in a process of its own, for rules that somebody has typed into a browser.

It has no way to any server, knows no functions, and may be killed: whoever asks reads the messages.
Asked on standard input in msgpack, it answers on standard output, a line of JSON each:

1. {rules: text, names: topics} -> {name, rules, warnings, topics: those it reads}, or {error}
2. [topic, pointers, messages, is_enveloped], as often as there are some; nothing is answered
3. the end -> what `DryRun.told` returns, or {error}

Or it filters: {filter: {kind: json or cel, text}} -> {}, or {error}; then each batch of messages is
answered by {places: of those that it takes, failed: how many could not be judged, reason}.
"""

import json
import resource
import sys
from pathlib import Path
from typing import Any, Final

import msgpack  # type: ignore[import-untyped]  # it ships no type hints

from poe.errors import InvalidMapping, PoeError
from poe.mapping.action import Drop
from poe.mapping.checks import warnings
from poe.mapping.document import load_text
from poe.mapping.dry_run import DryRun, topics_of
from poe.mapping.message import columns_of
from poe.mapping.rule import Route, Rule, Source
from poe.mapping.rule_set import RuleSet

_PROCESSOR_S: Final = 10
_MEMORY_MAX: Final = 4 << 30
_MET: Final = b"met"


def main() -> None:
    """Answer until the end of the input."""
    resource.setrlimit(resource.RLIMIT_CPU, (_PROCESSOR_S, _PROCESSOR_S))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_MAX, _MEMORY_MAX))
    # Without a buffer: that would wait until it is full.
    with open(0, "rb", buffering=0, closefd=False) as given:
        _run(msgpack.Unpacker(given, max_buffer_size=1 << 30))


def _run(unpacker: Any) -> None:  # noqa: ANN401 - msgpack has no types
    try:
        asked = next(unpacker)
        if "filter" in asked:
            _filter(unpacker, **asked["filter"])
            return
        rules = load_text(asked["rules"], Path("rules.toml"), has_functions=False)
        compiled = rules.compile()
        _answer(
            {
                "name": rules.name,
                "rules": [each.id for each in rules.rules],
                "warnings": warnings(rules),
                "topics": [each.hex() for each in topics_of(compiled, asked["names"])],
            }
        )
        found = DryRun(compiled)
        for topic, pointers, messages, is_enveloped in unpacker:
            found.take(columns_of(topic, pointers, messages, is_enveloped=is_enveloped))
        _answer(found.told())
    except PoeError as error:
        _answer({"error": str(error)})


def _filter(unpacker: Any, kind: str, text: str) -> None:  # noqa: ANN401 - msgpack has no types
    compiled = filter_of(kind, text).compile()
    _answer({})
    for topic, pointers, messages, is_enveloped in unpacker:
        columns = columns_of(topic, pointers, messages, is_enveloped=is_enveloped)
        decisions = compiled.decide(columns)
        put = decisions.puts.get(_MET)
        reason = f"{decisions.failed[0].why}" if decisions.failed else ""
        places = [] if put is None else list(put.places)
        _answer({"places": places, "failed": len(decisions.failed), "reason": reason})


def filter_of(kind: str, text: str) -> RuleSet:
    """Return rules that put what a filter takes onto the topic `met`.

    Args:
        kind: `json`, a pattern written as JSON, or `cel`.
        text: the filter.

    Raises:
        InvalidMapping: it is none.
    """
    fate = Route(to=(_MET.decode(),))
    if kind == "cel":
        rule = Rule(id="filter", fate=fate, when=text)
    else:
        try:
            rule = Rule(id="filter", fate=fate, body=json.loads(text))
        except (ValueError, RecursionError) as error:
            problem = f'is no JSON ({error}); write as {{"type": "a", "amount": {{"gt": 100}}}}'
            raise InvalidMapping("filter", problem) from error
    source = Source(topics=("*",))
    return RuleSet(
        name="filter", source=source, otherwise=Drop(), rules=(rule,), undecodable="otherwise"
    )


def _answer(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told, ensure_ascii=True) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
