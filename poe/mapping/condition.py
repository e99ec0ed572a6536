"""What a message has to be for one rule, compiled: patterns and an expression, all of them."""

from collections.abc import Callable, Iterator
from typing import Any

from poe.mapping.expression import Expressions
from poe.mapping.message import Message
from poe.mapping.pattern import MISSING, Clause, Pattern, Test, compile_pattern
from poe.mapping.rule import Rule

MessageTest = Callable[[Message], bool]


class Condition:
    """The patterns and the expression of a rule.

    Raises:
        InvalidMapping: on construction, one of them is none.
    """

    def __init__(self, rule: Rule, expressions: Callable[[], Expressions]) -> None:
        place = f"rule {rule.id!r}"

        def pattern(data: object, name: str, **of: Any) -> Pattern | None:  # noqa: ANN401
            return None if data is None else compile_pattern(data, f"{place}: {name}", **of)

        self.topic = pattern(rule.topic, "topic", kind="name")
        self.key = pattern(rule.key_is, "key_is", kind="bytes")
        self.header = pattern(rule.header, "header", kind="bytes")
        self.body = pattern(rule.body, "body")
        self._rule = rule
        self._holds: MessageTest | None = None
        self._body_holds: Test | None = None
        self.needs_body = self.body is not None
        if rule.when is not None:
            language = expressions()
            self._holds = language.compile(rule.when, rule.id)
            self._body_holds = language.compile_body(rule.when, rule.id)
            self.needs_body |= "body" in language.names(rule.when)
        is_body_alone = self._holds is None or self._body_holds is not None
        self.is_about_body = self.key is None and self.header is None and is_body_alone

    @property
    def is_always(self) -> bool:
        """Whether any message of its topics meets it."""
        return self.is_about_body and self.body is None and self._holds is None

    @property
    def body_test(self) -> Test:
        """What the body has to pass, where nothing but that is asked.

        It raises `RuleError` where the expression does.
        """
        holds = self._body_holds
        if self.body is None:
            return passes if holds is None else holds
        test = self.body.test
        return test if holds is None else lambda body: test(body) and holds(body)

    @property
    def message_test(self) -> MessageTest:
        """What a message has to pass, whose topic is one of the rule's.

        It raises `RuleError` where the expression does. The body is decoded before, if it is
        looked at.
        """
        tests: list[MessageTest] = []
        if self.key is not None:
            tests.append(_of_key(self.key.test))
        if self.header is not None:
            tests.append(_of_header(self.header.test))
        if self.body is not None:
            tests.append(_of_body(self.body.test))
        if self._holds is not None:
            tests.append(self._holds)
        if not tests:
            return passes
        if len(tests) == 1:
            return tests[0]
        return lambda message: all(test(message) for test in tests)

    def clauses(self, message: Message) -> Iterator[Clause]:
        """Yield how a message fares, part by part.

        Raises:
            UndecodableMessage: the rule looks at the body, and there is none.
        """
        subjects = (
            (self.topic, "topic", lambda: message.topic),
            (self.key, "key_is", lambda: _present(message.key)),
            (self.header, "header", lambda: dict(message.headers or {})),
            (self.body, "body", lambda: message.body),
        )
        is_met = True
        for pattern, name, value in subjects:
            if pattern is not None:
                for clause in pattern.clauses(name, value()):
                    is_met &= clause.is_met
                    yield clause
        # As when it is decided: what needs not be asked any more might end with an error.
        if self._holds is not None and is_met:
            yield Clause("when", self._holds(message), str(self._rule.when), "")


def passes(subject: object) -> bool:
    """Whether anything meets a rule that asks nothing."""
    del subject
    return True


def _present(key: bytes | None) -> object:
    return MISSING if key is None else key


def _of_key(test: Test) -> MessageTest:
    return lambda message: test(_present(message.key))


def _of_header(test: Test) -> MessageTest:
    return lambda message: test(message.headers or {})


def _of_body(test: Test) -> MessageTest:
    return lambda message: test(message.body)
