"""Makes rules of plain data, as TOML has it and as decorators are given it; refuses all else.

The one place that knows which words there are, and what may be written with them.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NoReturn

from poe.errors import InvalidMapping
from poe.errors.short_text import short_repr
from poe.mapping.action import Dead, Drop, Ok, Retry, Stop
from poe.mapping.function_file import is_found_again
from poe.mapping.matcher import DECODING
from poe.mapping.pattern import compile_pattern
from poe.mapping.rule import (
    CHOICES,
    DEFAULT_TOPICS_MAX,
    Call,
    Example,
    Fate,
    OnError,
    Route,
    Rule,
    Source,
)
from poe.mapping.rule_set import OTHERWISE, RuleSet
from poe.record import POINTER_MAX
from poe.topic_name import is_plain

Place = tuple[str | int, ...]
"""Keys, and places in lists, that lead to a value."""

FindCall = Callable[[object], tuple[Callable[..., Any], str, str]]
"""Return the function that is meant, its name, and the hash of its file."""

FATES: Final = ("to", "call", "ok", "drop", "dead", "retry", "stop")
"""What a rule does; it has one of these, and with `call` may have `to`."""

_ROUTE: Final = ("to", "key", "topics", "topics_max")
_CALL: Final = ("call", "pure", "timeout_s", "isolation")
ACTIONS: Final = ("to", "ok", "drop", "dead", "retry", "stop", "error")
"""What may have become of a message."""

_NO_RULES: Final = (OTHERWISE, DECODING)
_CONDITIONS: Final = ("topic", "key_is", "header", "body", "when")
_RULE: Final = ("id", *_CONDITIONS, *_ROUTE, *_CALL, *FATES[2:])
_SETTINGS: Final = ("start", "decode", "undecodable", "match", "retries")
_ALL: Final = (
    *("name", "source", *_SETTINGS, "otherwise", "on_error", "loop", "hops_max"),
    *("rule", "test"),
)
_TEST_IN: Final = ("topic", "pointer", "key", "header", "body", "value")
_TEST_EXPECT: Final = ("rule", "action", "to", "key", "body", "why")
_NAME_MAX: Final = 100


class Definition:
    """Plain data that is to be a mapping.

    Args:
        values: as TOML has them.
        refuse: raises what says that a value at a place is wrong.
        where: returns a place for people.
        find_call: finds functions.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        refuse: Callable[[Place, str], NoReturn],
        where: Callable[[Place], str],
        find_call: FindCall,
    ) -> None:
        self._values = values
        self._refuse = refuse
        self._where = where
        self._find_call = find_call

    def rule_set(self) -> RuleSet:
        """Return the mapping.

        Raises:
            PoeError: as `refuse` does.
        """
        values = self._table((), self._values, _ALL)
        for key in ("name", "source", "otherwise"):
            if key not in values:
                self._refuse((), f"{key!r} is missing; {_MISSING[key]}")
        name = self._text(("name",), values["name"])
        if not is_plain(name.encode("utf-8", "replace")) or len(name) > _NAME_MAX:
            allowed = f"up to {_NAME_MAX} letters, digits, '.', '_' and '-'"
            self._refuse(("name",), f"is {short_repr(name)}; use {allowed}")
        rules = self._list(("rule",), values.get("rule", []))
        tests = self._list(("test",), values.get("test", []))
        chosen = {key: self._choice((key,), values[key], key) for key in _SETTINGS if key in values}
        return RuleSet(
            name=name,
            source=self._source(values["source"]),
            otherwise=self._otherwise(values["otherwise"]),
            on_error=self._on_error(values.get("on_error", {})),
            loop=self._bool(("loop",), values.get("loop", False)),
            hops_max=self._whole(("hops_max",), values.get("hops_max", 16), 1, 1000),
            rules=tuple(self._rule(("rule", at), each) for at, each in enumerate(rules)),
            examples=tuple(self._example(("test", at), each) for at, each in enumerate(tests)),
            **chosen,
        )

    # ---- parts --------------------------------------------------------------------------------

    def _source(self, value: Any) -> Source:  # noqa: ANN401 - data
        table = self._table(("source",), value, ("topics",))
        if "topics" not in table:
            self._refuse(("source",), "has no topics; write topics = ['orders', 'web.*']")
        return Source(topics=self._names(("source", "topics"), table["topics"]))

    def _otherwise(self, value: Any) -> Fate:  # noqa: ANN401 - data
        place: Place = ("otherwise",)
        words: dict[str, Fate] = {"drop": Drop(), "ok": Ok(), "dead": Dead("it met no rule")}
        if isinstance(value, str) and value in words:
            return words[value]
        if not isinstance(value, Mapping):
            allowed = "'drop', 'ok', 'dead', or a table such as { to = 'rest' }"
            self._refuse(place, f"is {short_repr(value)}; use {allowed}")
        return self._fate(place, self._table(place, value, (*_ROUTE, *FATES[2:])))

    def _on_error(self, value: Any) -> OnError:  # noqa: ANN401 - data
        place: Place = ("on_error",)
        if isinstance(value, str):
            return OnError(then=self._choice(place, value, "then"))
        table = self._table(place, value, ("retry", "backoff_s", "then"))
        found: dict[str, Any] = {}
        if "retry" in table:
            found["retry"] = self._whole((*place, "retry"), table["retry"], 0, 1_000_000)
        if "backoff_s" in table:
            at = (*place, "backoff_s")
            times = [
                self._seconds((*at, n), each)
                for n, each in enumerate(self._list(at, table["backoff_s"]))
            ]
            if len(times) != 2 or times[0] > times[1]:  # noqa: PLR2004 - least and most
                self._refuse(at, "use the first and the longest wait, as in [1, 60] (seconds)")
            found["backoff_s"] = tuple(times)
        if "then" in table:
            found["then"] = self._choice((*place, "then"), table["then"], "then")
        return OnError(**found)

    def _rule(self, place: Place, value: Any) -> Rule:  # noqa: ANN401 - data
        table = self._table(place, value, _RULE)
        if "id" not in table:
            self._refuse(place, "a rule has no id; write id = 'a-name'")
        conditions = {key: table[key] for key in _CONDITIONS if key in table}
        if "when" in conditions:
            self._text((*place, "when"), conditions["when"])
        return Rule(
            id=self._text((*place, "id"), table["id"]),
            fate=self._fate(place, table),
            place=self._where(place),
            **conditions,
        )

    def _fate(self, place: Place, table: Mapping[str, Any]) -> Fate:
        named = [key for key in FATES if key in table]
        if len(named) != 1 and named != ["to", "call"]:
            has = f"has {' and '.join(named)}" if named else "says not what to do"
            self._refuse(place, f"{has}; use one of {', '.join(FATES)}")
        for keys, of in ((_ROUTE, "to"), (_CALL, "call")):
            for key in keys:
                # The allow-list holds for what functions return, too.
                if key in table and of not in named and not ("call" in named and key == "topics"):
                    self._refuse((*place, key), f"{key!r} is of rules with {of!r}")
        if "call" in named:
            return self._call(place, table)
        if "to" in named:
            return self._route(place, table)
        [key] = named
        return self._plain(key, (*place, key), table[key])

    def _plain(self, key: str, place: Place, value: Any) -> Fate:  # noqa: ANN401 - data
        if key == "ok":
            if value is not True:
                self._refuse(place, f"is {short_repr(value)}; use ok = true")
            return Ok()
        if key == "retry":
            return Retry(None if value is True else self._seconds(place, value))
        if value is True:
            value = ""
        elif not isinstance(value, str):
            self._refuse(place, f"is {short_repr(value)}; use true, or a text that says why")
        if key == "drop":
            return Drop(value)
        return Dead(value) if key == "dead" else Stop(value)

    def _route(self, place: Place, table: Mapping[str, Any]) -> Route:
        given: dict[str, Any] = {"to": self._names((*place, "to"), table["to"])}
        if "key" in table:
            given["key"] = self._text((*place, "key"), table["key"])
        if "topics" in table:
            given["topics"] = self._names((*place, "topics"), table["topics"])
        most = table.get("topics_max", DEFAULT_TOPICS_MAX)
        given["topics_max"] = self._whole((*place, "topics_max"), most, 1, 1_000_000)
        return Route(**given)

    def _call(self, place: Place, table: Mapping[str, Any]) -> Call:
        try:
            function, name, sha256 = self._find_call(table["call"])
        except InvalidMapping as error:
            self._refuse((*place, "call"), str(error))
        given: dict[str, Any] = {}
        if "pure" in table:
            given["pure"] = self._bool((*place, "pure"), table["pure"])
        if "timeout_s" in table:
            given["timeout_s"] = self._seconds((*place, "timeout_s"), table["timeout_s"])
        if "isolation" in table:
            at = (*place, "isolation")
            given["isolation"] = self._choice(at, table["isolation"], "isolation")
            if given["isolation"] == "process" and not is_found_again(function):
                why = "use it for functions that a file has by their own names"
                self._refuse(at, f"is 'process'; {why}")
        if "to" in table:
            given["route"] = self._route(place, table)
        if "topics" in table:
            given["topics"] = self._names((*place, "topics"), table["topics"])
        return Call(function=function, name=name, sha256=sha256, **given)

    def _example(self, place: Place, value: Any) -> Example:  # noqa: ANN401 - data
        table = self._table(place, value, ("in", "expect"))
        for key in ("in", "expect"):
            if key not in table:
                self._refuse(place, f"a test has no {key!r}; write in = {{…}} and expect = {{…}}")
        given = self._given((*place, "in"), table["in"])
        expect = self._expected((*place, "expect"), table["expect"])
        return Example(place=self._where(place), given=given, expect=expect)

    def _given(self, place: Place, value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - data
        given = self._table(place, value, _TEST_IN)
        if ("body" in given) == ("value" in given):
            self._refuse(place, "use either body, or value (a text)")
        if "topic" in given:
            self._text((*place, "topic"), given["topic"])
        if "pointer" in given:
            self._whole((*place, "pointer"), given["pointer"], 0, POINTER_MAX)
        header = given.get("header", {})
        self._table((*place, "header"), header, header)
        return given

    def _expected(self, place: Place, value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - data
        expect = self._table(place, value, _TEST_EXPECT)
        known = [*self._ids(), *_NO_RULES]
        if expect.get("rule", known[0]) not in known:
            allowed = ", ".join(known)
            self._refuse((*place, "rule"), f"is {short_repr(expect['rule'])}; use one of {allowed}")
        if expect.get("action", "ok") not in ACTIONS:
            why = f"is {short_repr(expect['action'])}; use one of {', '.join(ACTIONS)}"
            self._refuse((*place, "action"), why)
        if "to" in expect:
            self._names((*place, "to"), expect["to"])
        if "body" in expect:
            try:
                compile_pattern(expect["body"])
            except InvalidMapping as error:
                self._refuse((*place, *error.place.split(".")), error.problem)
        return expect

    def _ids(self) -> list[str]:
        return [str(each.get("id")) for each in self._values.get("rule", [])]

    # ---- values -------------------------------------------------------------------------------

    def _table(self, place: Place, value: object, keys: Collection[str]) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self._refuse(place, f"is {short_repr(value)}; use a table")
        for key in value:
            if key not in keys:
                self._refuse((*place, key), f"{key!r} is not known; use {', '.join(keys)}")
        return value

    def _list(self, place: Place, value: Any) -> list[Any]:  # noqa: ANN401 - data
        if not isinstance(value, list | tuple):
            self._refuse(place, f"is {short_repr(value)}; use a list")
        return list(value)

    def _names(self, place: Place, value: Any) -> tuple[str, ...]:  # noqa: ANN401 - data
        names = [value] if isinstance(value, str) else self._list(place, value)
        if not names or not all(isinstance(each, str) and each for each in names):
            self._refuse(place, f"is {short_repr(value)}; use names of topics")
        return tuple(names)

    def _text(self, place: Place, value: Any) -> str:  # noqa: ANN401 - data
        if not isinstance(value, str) or not value:
            self._refuse(place, f"is {short_repr(value)}; use a text")
        return value

    def _bool(self, place: Place, value: Any) -> bool:  # noqa: ANN401 - data
        if not isinstance(value, bool):
            self._refuse(place, f"is {short_repr(value)}; use true or false")
        return value

    def _whole(self, place: Place, value: Any, least: int, most: int) -> int:  # noqa: ANN401 - data
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self._refuse(place, f"is {short_repr(value)}; use {least} to {most}")
        return value

    def _seconds(self, place: Place, value: Any) -> float:  # noqa: ANN401 - data
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value <= _SECONDS_MAX:
            self._refuse(place, f"is {short_repr(value)}; use seconds, up to {_SECONDS_MAX}")
        return float(value)

    def _choice(self, place: Place, value: Any, of: str) -> Any:  # noqa: ANN401 - a literal
        if value not in CHOICES[of]:
            self._refuse(place, f"is {short_repr(value)}; use {' or '.join(CHOICES[of])}")
        return value


_SECONDS_MAX: Final = 86_400
_MISSING: Final = {
    "name": "write name = 'orders'",
    "source": "write source = { topics = ['orders', 'web.*'] }",
    "otherwise": "write what becomes of messages that meet no rule: otherwise = 'dead' "
    "(or drop, ok, or { to = 'rest' })",
}
