"""What a pipeline consists of: sources, steps and sinks, as checked values without Spark.

Their fields are the keys of a pipeline file, and the arguments of `Pipeline.source`, `step` and
`sink`. What is wrong is told with its place: `steps.failed.takes`.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin

from poe.errors import InvalidPipeline, OptionError
from poe.spark.read_options import ReadOptions
from poe.spark.write_options import WriteOptions

Function: TypeAlias = Callable[..., Any]
Options: TypeAlias = Mapping[str, str]
Kind = TypeVar("Kind")

AVAILABLE_NOW: Final = "availableNow"
TOPIC_FORMAT: Final = "poe"
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NAME_RULE: Final = "use letters, digits and _, no digit first: SQL uses it as a table's name"
_TOPIC_OPTIONS: Final = frozenset({"topic", "topics", "topicpattern"})
_PARSE_FORMATS: Final = ("json", "csv", "regex", "msgpack")
_GROUP: Final = re.compile(r"\(\?P?<(?![=!])(\w+)>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parse:
    """How the text or bytes of one column become columns; the column itself goes.

    A field that cannot be read is null.
    """

    format: str
    """json, csv, regex or msgpack."""
    schema: str = ""
    """The fields as in `"address STRING, port INT"`; for a regex optional, they are text then."""
    pattern: str = ""
    """Of a regex; its groups `(?P<name>…)` become the fields. Searched for, so use ^ and $."""
    column: str = "message"
    options: Options = field(default_factory=dict)
    """Spark's options for JSON or CSV, as in `{sep = ";"}`."""
    drop_invalid: bool = False
    """Leave out rows of which no field could be read."""

    def check(self, place: str) -> None:
        """Refuse what does not fit together."""
        if self.format not in _PARSE_FORMATS:
            formats = ", ".join(_PARSE_FORMATS)
            raise InvalidPipeline(
                place=f"{place}.format", problem=f"is {self.format!r}; use {formats}"
            )
        if self.pattern and self.format != "regex":
            raise InvalidPipeline(place=f"{place}.pattern", problem="goes with regex only")
        if self.options and self.format not in {"json", "csv"}:
            raise InvalidPipeline(place=f"{place}.options", problem="go with json and csv only")
        if self.format == "regex":
            if not self.pattern:
                raise InvalidPipeline(
                    place=f"{place}.pattern", problem="is missing; a regex needs one"
                )
            try:
                names = re.compile(_GROUP.sub(r"(?P<\1>", self.pattern)).groupindex
            except re.error as error:
                raise InvalidPipeline(
                    place=f"{place}.pattern", problem=f"is no regex: {error}"
                ) from error
            if not names:
                problem = "names no field; use groups such as (?P<address>[0-9.]+)"
                raise InvalidPipeline(place=f"{place}.pattern", problem=problem)
        elif not self.schema:
            problem = f'is missing; {self.format} needs one, as in "address STRING, port INT"'
            raise InvalidPipeline(place=f"{place}.schema", problem=problem)

    def groups(self) -> tuple[str, dict[str, int]]:
        """Return the pattern as Java reads it, without names, and the number of each field."""
        numbers = re.compile(_GROUP.sub(r"(?P<\1>", self.pattern)).groupindex
        return _GROUP.sub("(", self.pattern), dict(numbers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How late a row may come: `["timestamp", "10 minutes"]` in a file."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A stream that comes in: a topic, or any streaming format of Spark."""

    name: str
    topic: str | None = None
    """Short for `options.topic`; several are `options.topics` or `options.topicPattern`."""
    format: str = TOPIC_FORMAT
    path: str | None = None
    """Of files; relative to the pipeline's file. With topics it is a server's folder."""
    options: Options = field(default_factory=dict)
    """Of the format, in its own words, as in `{startingPointer = "earliest"}`."""
    schema: str | None = None
    """For formats that need one, such as JSON files."""
    parse: Parse | None = None
    watermark: Watermark | None = None
    """Of a column as it is after `parse`."""

    def check(self, place: str) -> None:
        """Refuse what does not fit together."""
        topics = _topics_of(self.topic, self.options)
        if self.format != TOPIC_FORMAT and self.topic is not None:
            raise InvalidPipeline(
                place=f"{place}.topic", problem=f"does not go with format {self.format!r}"
            )
        if self.format == TOPIC_FORMAT and not topics:
            problem = "names no topic; use topic, or options.topics or options.topicPattern"
            raise InvalidPipeline(place, problem)
        if self.is_topic:
            own = _own_options(self)
            with placed({place: own, f"{place}.options": self.options}):
                ReadOptions.parse({**self.options, **own}, "stream")

    @property
    def is_topic(self) -> bool:
        """Whether it is of topics, and not a format of Spark's own."""
        return self.format == TOPIC_FORMAT


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A table made of others: by SQL, by a Python function over DataFrames, or by parsing one."""

    name: str
    takes: tuple[str, ...] = ()
    """Sources and steps. Without it, of a function the names of its parameters, and of SQL all
    names that the text has."""
    sql: str | None = None
    function: Function | None = None
    """Called in the driver with the DataFrames of `takes`; returns a DataFrame."""
    parse: Parse | None = None
    watermark: Watermark | None = None

    def check(self, place: str) -> None:
        """Refuse what does not fit together."""
        given = [key for key in ("sql", "function", "parse") if getattr(self, key) is not None]
        if len(given) != 1:
            said = "and ".join(f"{key} " for key in given) or "none of them"
            raise InvalidPipeline(place, f"has {said.strip()}; use one of sql, function or parse")
        if self.parse is not None and len(self.takes) != 1:
            raise InvalidPipeline(
                place=f"{place}.takes", problem="names the one source or step to parse"
            )

    def inputs(self, known: Mapping[str, object]) -> tuple[str, ...]:
        """Return the names of the tables that it is made of."""
        if self.takes:
            return self.takes
        if self.function is not None:
            return tuple(inspect.signature(self.function).parameters)
        words = set(re.findall(r"\w+", self.sql or ""))
        return tuple(name for name in known if name in words and name != self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Where a table goes; each sink is a query of its own, with a checkpoint of its own."""

    name: str
    takes: str
    """A source or a step."""
    topic: str | None = None
    format: str | None = None
    """`console`, `parquet` or any other that Spark can stream to."""
    path: str | None = None
    """Of files; relative to the pipeline's file."""
    options: Options = field(default_factory=dict)
    function: Function | None = None
    """foreachBatch: called in the driver with the DataFrame and the number of each batch."""
    partition_by: tuple[str, ...] = ()
    mode: str = "append"
    """append, update or complete; of a topic append."""
    trigger: str | None = None
    """`"10 seconds"` between batches, or `availableNow`: what is there, then it is done. Without
    it batches follow each other."""

    def check(self, place: str) -> None:
        """Refuse what does not fit together."""
        given = [key for key in ("topic", "format", "function") if getattr(self, key) is not None]
        if len(given) != 1:
            said = " and ".join(given) or "none of them"
            raise InvalidPipeline(place, f"has {said}; use one of topic, format or function")
        if self.mode not in {"append", "update", "complete"}:
            problem = f"is {self.mode!r}; use append, update or complete"
            raise InvalidPipeline(place=f"{place}.mode", problem=problem)
        if self.path is not None and self.format is None:
            raise InvalidPipeline(place=f"{place}.path", problem="goes with format only")
        if self.partition_by and (self.is_topic or self.function is not None):
            problem = "goes with a format of files only"
            raise InvalidPipeline(place=f"{place}.partition_by", problem=problem)
        if self.options and self.function is not None:
            problem = "go with topic or format; what a function writes has its own"
            raise InvalidPipeline(place=f"{place}.options", problem=problem)
        if self.mode != "append" and self.is_topic:
            problem = f"is {self.mode!r}; use append: topics only grow"
            raise InvalidPipeline(place=f"{place}.mode", problem=problem)
        if self.is_topic:
            own = _own_options(self)
            with placed({place: own, f"{place}.options": self.options}):
                WriteOptions.parse({**self.options, **own}).check_stream()

    @property
    def is_topic(self) -> bool:
        """Whether it is a topic, and not a format of Spark's own or a function."""
        return self.topic is not None or self.format == TOPIC_FORMAT


def make(kind: type[Kind], place: str, values: Mapping[str, object]) -> Kind:
    """Make a definition of what was written down.

    Raises:
        InvalidPipeline: an unknown or missing key, a value of a wrong type, or of the right one
            that makes no sense; told with its place.
    """
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]  # all of them are
    for key in values:
        if key not in known:
            keys = ", ".join(key for key in known if key != "name")
            raise InvalidPipeline(place=f"{place}.{key}", problem=f"is not known; use {keys}")
    made = {}
    for key, each in known.items():
        if values.get(key) is not None:
            made[key] = _value(each, f"{place}.{key}", values[key])
        elif each.default is MISSING and each.default_factory is MISSING:
            raise InvalidPipeline(place=f"{place}.{key}", problem="is missing")
    definition = kind(**made)
    if "name" in made and not _NAME.fullmatch(str(made["name"])):
        raise InvalidPipeline(place, f"is no name; {_NAME_RULE}")
    check = getattr(definition, "check", None)
    if check is not None:
        check(place)
    return definition


def _value(each: "Field[Any]", place: str, value: object) -> object:
    """Return a field's value as its type has it."""
    kinds = get_args(each.type) if isinstance(each.type, UnionType) else (each.type,)
    kind = next(kind for kind in kinds if kind is not NoneType)
    made: object = None
    match value:
        case str() | bool() if kind is type(value):
            made = value
        case str() if kind == tuple[str, ...]:
            made = (value,)
        case [*words] if kind == tuple[str, ...] and all(isinstance(word, str) for word in words):
            made = tuple(words)
        case [str() as column, str() as delay] if kind is Watermark:
            made = Watermark(column=column, delay=delay)
        case Mapping() if kind is Parse:
            made = make(Parse, place, value)
        case Mapping() if kind == Options:
            made = option_texts(place, value)
        case _ if kind == Function and callable(value):
            made = value
    if made is None:
        raise InvalidPipeline(place, f"is {value!r}; use {_ALLOWED[_word(kind)]}")
    return made


_ALLOWED: Final = {
    "str": "text",
    "bool": "true or false",
    "tuple": "a name or a list of names",
    "Watermark": 'a column and a delay: ["timestamp", "10 minutes"]',
    "Parse": 'a table: {format = "json", schema = "…"}',
    "Mapping": "a table of options",
    "Callable": 'a function, in a file "steps.py:name"',
}


def _word(kind: Any) -> str:  # noqa: ANN401 - a type, or what stands for several
    return str((get_origin(kind) or kind).__name__)


def option_texts(place: str, options: Mapping[str, object]) -> dict[str, str]:
    """Return options as Spark wants them: as text.

    Raises:
        InvalidPipeline: a value is neither text nor a number, true or false.
    """
    texts = {}
    for key, value in options.items():
        if not isinstance(value, str | int | float):
            problem = f"is {value!r}; use text, a number, true or false"
            raise InvalidPipeline(place=f"{place}.{key}", problem=problem)
        texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return texts


def _own_options(end: Source | Sink) -> dict[str, str]:
    """Return the options of a topic that stand beside `options`."""
    own = {"topic": end.topic, "path": end.path}
    return {key: text for key, text in own.items() if text is not None}


@contextmanager
def placed(written: Mapping[str, Options]) -> Iterator[None]:
    """Tell of a wrong option where it stands.

    Args:
        written: options by their places; what stands in none of them is told of the last one.

    Raises:
        InvalidPipeline: instead of an `OptionError`.
    """
    try:
        yield
    except OptionError as error:
        found = (
            f"{place}.{key}"
            for place, options in written.items()
            for key in options
            if key.lower() == error.key.lower()
        )
        problem = str(error).removeprefix(f"option {error.key!r} ")
        place = next(found, f"{list(written)[-1]}.{error.key}")
        raise InvalidPipeline(place, problem) from error


def _topics_of(topic: str | None, options: Options) -> set[str]:
    """Return which ways of naming topics are used."""
    given = {key.lower() for key in options} & _TOPIC_OPTIONS
    return given | ({"topic"} if topic else set())
