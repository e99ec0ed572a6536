"""Tests that stand beside the rules: messages, and what has to become of them."""

from collections.abc import Mapping
from typing import Any

from poe.errors import UndecodableMessage
from poe.mapping.decision import Decisions
from poe.mapping.decoding import decoder, encode_body
from poe.mapping.message import Columns, Message, topic_bytes, topic_text
from poe.mapping.pattern import compile_pattern
from poe.mapping.rule import Example
from poe.mapping.rule_set import Compiled, RuleSet


def complaints(compiled: Compiled, example: Example) -> list[str]:
    """Return what has become of the message otherwise than the test expects.

    Functions are called.
    """
    try:
        message = message_of(compiled.rules, example.given)
    except UndecodableMessage as error:
        return [str(error)]
    decisions = compiled.decide(batch_of(message))
    found = outcome(decisions)
    wrong = []
    expect = dict(example.expect)
    if isinstance(expect.get("to"), str):
        expect["to"] = [expect["to"]]
    for name, wanted in expect.items():
        if name == "body":
            wrong += _wrong_bodies(compiled.rules, decisions, wanted)
        elif name == "why":
            if str(wanted) not in found["why"]:
                wrong.append(f"why: {wanted!r} is not in {found['why']!r}")
        elif found[name] != wanted:
            wrong.append(f"{name}: is {found[name]!r} instead of {wanted!r}")
    if wrong and "why" not in example.expect and found["why"]:
        wrong.append(f"for: {found['why']}")
    return wrong


def message_of(rules: RuleSet, given: Mapping[str, Any]) -> Message:
    """Return the message of a test.

    Raises:
        UndecodableMessage: the body cannot be encoded as the mapping decodes.
    """
    known = [each for each in rules.source.topics if "*" not in each]
    value = given.get("value")
    return Message(
        topic=given.get("topic", known[0] if known else "topic"),
        pointer=given.get("pointer", 1),
        value=encode_body(rules.decode, given["body"]) if "body" in given else _bytes(value),
        key=_bytes(given.get("key")),
        headers={name: _bytes(each) or b"" for name, each in given.get("header", {}).items()},
        decode=rules.decode,
    )


def batch_of(message: Message) -> Columns:
    """Return a batch of one message."""
    return Columns(
        topic_bytes(message.topic),
        [message.pointer],
        [message.value],
        [message.key],
        [message.headers],
    )


def outcome(decisions: Decisions) -> dict[str, Any]:
    """Return what has become of the one message of a batch, by the words of tests.

    Of several rules that a message has met, the first is told.
    """
    topics = [topic_text(each) for each in decisions.puts]
    if decisions.stopped is not None:
        told = {"rule": decisions.stopped.rule, "action": "stop", "why": decisions.stopped.why}
    else:
        rule, action = next(iter(decisions.counts))
        fallen = [*decisions.failed, *decisions.dead]
        why = fallen[0].why if fallen else next((each for _, each in decisions.reasons), "")
        told = {"rule": rule, "action": action, "why": why}
    keys = [put.keys[0] for put in decisions.puts.values() if put.keys]
    key = keys[0] if keys else None
    return {**told, "to": topics, "key": None if key is None else key.decode("utf-8", "replace")}


def _wrong_bodies(rules: RuleSet, decisions: Decisions, wanted: object) -> list[str]:
    pattern = compile_pattern(wanted, "body")
    wrong = [] if decisions.puts else ["body: nothing was put"]
    for topic, put in decisions.puts.items():
        try:
            body = decoder(rules.decode)(put.values[0])
        except UndecodableMessage as error:
            wrong.append(f"body: {error}")
            continue
        wrong += [
            f"{topic_text(topic)}: {clause.place} is {clause.found} instead of {clause.wanted}"
            for clause in pattern.clauses("body", body)
            if not clause.is_met
        ]
    return wrong


def _bytes(text: Any) -> bytes | None:  # noqa: ANN401 - data
    return text if text is None or isinstance(text, bytes) else str(text).encode()
