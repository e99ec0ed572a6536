"""Pipeline files: TOML or Python in, a `Pipeline` out, or an error that tells the line.

A Python file is run like a script. Its functions stay outside `sys.modules`, so that they are
pickled to executors by value: no executor can import a file that lies with the driver.
"""

import importlib
import re
import runpy
import sys
import tomllib
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from poe.errors import InvalidPipeline
from poe.spark.pipeline.pipeline import Pipeline

BUILDER: Final = "build"
"""Name of the function of a Python file that returns the pipeline, where none is there ready."""
_MODULE: Final = "poe_pipeline_file"
_TABLES: Final = ("sources", "steps", "sinks")
_TIMES: Final = ("intensity", "period_s", "backoff_s")
_KEYS: Final = ("name", "checkpoint", *_TIMES, "server", "config", "py_files")
_ALL_KEYS: Final = (*_KEYS, *_TABLES)


def load_pipeline(path: Path) -> Pipeline:
    """Read a pipeline and check it; Spark is not started.

    Paths in it are relative to its file, which also gives its name and its checkpoints where it
    has none: `ssh.toml` is `ssh` and has them in `ssh.checkpoints`.

    Raises:
        InvalidPipeline: the file cannot be read, or something in it is wrong, told with its line.
    """
    path = path.resolve()
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise InvalidPipeline(str(path), f"cannot be read: {reason}") from error
    loaders = {".toml": _load_toml, ".py": _load_python}
    if path.suffix not in loaders:
        raise InvalidPipeline(str(path), "is no pipeline; use a file .toml or .py")
    try:
        pipeline = loaders[path.suffix](path, text)
        pipeline.file = path
        pipeline.check()
    except InvalidPipeline as error:
        raise at_line(path, text, error) from error
    if pipeline.checkpoint is None:
        pipeline.checkpoint = str(path.with_suffix(".checkpoints"))
    pipeline.checkpoint = pipeline.located(pipeline.checkpoint)
    pipeline.py_files = [pipeline.located(each) for each in pipeline.py_files]
    return pipeline


def at_line(path: Path, text: str, error: InvalidPipeline) -> InvalidPipeline:
    """Return the error with the file's name and, where it can be found, the line in front."""
    if error.place.startswith(str(path)):
        return error
    line = _line_of(text, error.place.split(".")) if path.suffix == ".toml" else None
    where = str(path) if line is None else f"{path}, line {line}"
    return InvalidPipeline(f"{where}: {error.place}", error.problem)


def _load_toml(path: Path, text: str) -> Pipeline:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidPipeline(str(path), f"is no TOML: {error}") from error
    for key in content:
        if key not in _ALL_KEYS:
            raise InvalidPipeline(key, f"is not known; use {', '.join(_ALL_KEYS)}")
    for key in ("config", "server", *_TABLES):
        if not isinstance(content.get(key, {}), dict):
            raise InvalidPipeline(key, f"is {content[key]!r}; use a table: [{key}…]")
    keys = {key: content[key] for key in _KEYS if key in content}
    keys["config"] = _flat(content.get("config", {}))
    pipeline = Pipeline(**{"name": path.stem, **keys})
    adders = (pipeline.source, pipeline.step, pipeline.sink)
    for table, add in zip(_TABLES, adders, strict=True):
        for name, values in content.get(table, {}).items():
            if not isinstance(values, dict):
                raise InvalidPipeline(
                    place=f"{table}.{name}", problem=f"is {values!r}; use a table"
                )
            add(name, **_with_functions(path, f"{table}.{name}", values))
    return pipeline


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Return `{spark.ui.enabled: false}` for `{spark: {ui: {enabled: false}}}`."""
    flat: dict[str, object] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = str(value).lower() if isinstance(value, bool) else value
    return flat


def _with_functions(path: Path, place: str, values: dict[str, Any]) -> dict[str, Any]:
    """Load the function that a table names, as in `steps.py:clean` or `package.module:clean`."""
    named = values.get("function")
    if not isinstance(named, str):
        return values
    where, _, name = named.rpartition(":")
    if where.endswith(".py"):
        names = _run(path.parent / where)
    elif where:
        try:
            names = vars(importlib.import_module(where))
        except ImportError as error:
            raise InvalidPipeline(
                place=f"{place}.function", problem=f"cannot be imported: {error}"
            ) from error
    else:
        names = {}
    function = names.get(name)
    if not callable(function):
        problem = f'is {named!r}, where no function is; use "steps.py:name" or "module:name"'
        raise InvalidPipeline(place=f"{place}.function", problem=problem)
    return {**values, "function": function}


def _load_python(path: Path, text: str) -> Pipeline:
    del text
    names = _run(path)
    found = {id(value): value for value in names.values() if isinstance(value, Pipeline)}
    if len(found) == 1:
        return next(iter(found.values()))
    build = names.get(BUILDER)
    if not found and callable(build):
        built = build()
        if isinstance(built, Pipeline):
            return built
        problem = f"returns {type(built).__name__}; let it return a poe.spark.Pipeline"
        raise InvalidPipeline(place=f"{BUILDER}()", problem=problem)
    problem = (
        f"holds {len(found)} pipelines; assign one poe.spark.Pipeline to a name, "
        f"or return it from a function {BUILDER}()"
    )
    raise InvalidPipeline(str(path), problem)


def _run(path: Path) -> dict[str, Any]:
    """Run a Python file and return its names; a failure is told with its line."""
    folder = str(path.parent)
    if folder not in sys.path:  # as for a script: it may import its neighbours
        sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=_MODULE)
    except SyntaxError as error:
        place = f"{path}, line {error.lineno}"
        raise InvalidPipeline(place, f"is no Python: {error.msg}") from error
    except OSError as error:
        raise InvalidPipeline(str(path), f"cannot be read: {error.strerror}") from error
    except (Exception, SystemExit) as error:  # a file is no script, and ends nothing
        frames = traceback.extract_tb(error.__traceback__)
        line = next((each.lineno for each in reversed(frames) if each.filename == str(path)), None)
        where = str(path) if line is None else f"{path}, line {line}"
        kind = "" if isinstance(error, InvalidPipeline) else f"{type(error).__name__}: "
        if "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error):
            kind = "needs Spark, which is not started yet; "
            kind += "write a type as StringType() instead of 'string', or do it within a step: "
        raise InvalidPipeline(where, f"{kind}{error}") from error


def _line_of(text: str, keys: list[str]) -> int | None:
    """Return the line of a key in TOML, or of the table that should have it.

    The parser tells no lines, so it is looked for as people write it: a header, then the key.
    """
    table: list[str] = []
    line = None
    for number, row in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*\[([^\]]+)\]", row)
        key = re.match(r"\s*([\w.\"'-]+)\s*=", row)
        if header:
            table = _words(header[1])
            if table == keys[: len(table)] or (line is None and table[: len(keys)] == keys):
                line = number
        elif key:
            full = [*table, *_words(key[1])]
            if full == keys[: len(full)]:
                return number
    return line


def _words(dotted: str) -> list[str]:
    return [word.strip(" \"'") for word in dotted.split(".")]
