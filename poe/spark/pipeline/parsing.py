"""Parsing: a column of text or bytes becomes columns.

JSON, CSV and regular expressions are Spark's own, and run in the JVM. msgpack is a function in
Python: Arrow arrays in and out, and a loop in between, as no library reads many maps at once.
"""

from functools import reduce
from operator import or_
from typing import Any

import msgpack  # type: ignore[import-untyped]  # it ships no type hints
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's documents have it
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from poe.spark.pipeline.definitions import Parse

_PARSED = "__parsed"
_MISFITS = (ValueError, pa.ArrowTypeError, OverflowError)
_OWN, _DATETIME = 0, 3
"""What msgpack's times become: of its own type, which no column takes, or Python's."""


def parse(table: DataFrame, how: Parse) -> DataFrame:
    """Return the table with the fields of `how` in place of its column.

    A field also takes the place of another column of its name.

    Raises:
        PySparkException: the column is not there, or the schema is none.
    """
    fields = StructType.fromDDL(how.schema) if how.schema else StructType()
    assert isinstance(fields, StructType)
    match how.format:
        case "json":
            parsed = F.from_json(_text(how), fields, dict(_texts(how)))
        case "csv":
            parsed = F.from_csv(_text(how), how.schema, dict(_texts(how)))
        case "msgpack":
            parsed = _msgpack(fields)(F.col(how.column))
        case _:
            parsed = _regex(how, fields)
    others = [name for name in table.columns if name != how.column]
    struct = table.select(*map(_column, others), parsed.alias(_PARSED))
    read = struct.schema[_PARSED].dataType
    assert isinstance(read, StructType)
    # A message may well have a key of its own.
    names = {name.lower() for name in read.names}
    kept = [_column(name) for name in others if name.lower() not in names]
    flat = struct.select(*kept, f"{_PARSED}.*")
    if how.drop_invalid:
        has_value = [_column(name).isNotNull() for name in read.names]
        flat = flat.where(reduce(or_, has_value))
    return flat


def _column(name: str) -> Column:
    return F.col(f"`{name}`")


def _text(how: Parse) -> Column:
    return F.col(how.column).cast("string")


def _texts(how: Parse) -> list[tuple[str, str]]:
    return [(key, str(value)) for key, value in how.options.items()]


def _regex(how: Parse, fields: StructType) -> Column:
    """Extract each group; a row that does not match has nulls."""
    pattern, numbers = how.groups()
    matches = _text(how).rlike(pattern)
    columns = []
    for name, number in numbers.items():
        value = F.when(matches, F.regexp_extract(_text(how), pattern, number))
        if name in fields.names:
            value = value.try_cast(fields[name].dataType)
        columns.append(value.alias(name))
    return F.struct(*columns)


def _msgpack(fields: StructType) -> Any:  # noqa: ANN401 - a function over columns
    kind = pa.struct(list(to_arrow_schema(fields, timezone="UTC")))

    # Spark tells by the types which kind of function it is.
    def read(messages: pa.Array) -> pa.Array:
        return unpacked(messages, kind)

    return arrow_udf(read, fields)  # type: ignore[call-overload]  # its stubs want the kind, too


def unpacked(messages: pa.Array, kind: pa.StructType) -> pa.Array:
    """Return msgpack maps as structs; null for what is none, and for a value of a wrong type.

    Keys that `kind` does not have are left out.
    """
    values = [_unpack(message) for message in messages.to_pylist()]
    try:
        return _structs(values, kind)
    except _MISFITS:
        # One value of a wrong type is not to cost its neighbours.
        return pa.array([_fitting(value, kind) for value in values], kind)


def _structs(values: list[Any], kind: pa.StructType) -> pa.Array:
    structs = pa.array(values, kind)
    # [nil] for a map is taken, and whoever looks at that map ends with the whole process.
    structs.validate(full=True)
    return structs


def _unpack(message: bytes | None, times: int = _DATETIME) -> dict[str, Any] | None:
    try:
        value = msgpack.unpackb(message, timestamp=times)
    except OverflowError:  # a time behind the year 9999 is to cost its own field alone
        return _unpack(message, _OWN)
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
    return value if isinstance(value, dict) else None


def _fitting(value: dict[str, Any] | None, kind: pa.StructType) -> dict[str, Any] | None:
    """Return the fields that have their type, others as null."""
    if value is None:
        return None
    fitting: dict[str, Any] = {}
    for field in kind:
        only = {field.name: value.get(field.name)}
        try:
            fitting |= _structs([only], pa.struct([field]))[0].as_py()
        except _MISFITS:
            fitting[field.name] = None
    return fitting
