"""Files of mappings: TOML in, rules out, or an error that tells the line and the cure.

A Python file is run like a script, and holds one `Mapping`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from poe.errors import InvalidMapping
from poe.mapping.checks import refuse_circles
from poe.mapping.decorators import Mapping
from poe.mapping.definition import Definition, Place
from poe.mapping.function_file import find_function, run_file
from poe.mapping.rule_set import OTHERWISE, RuleSet
from poe.toml_document import TomlDocument

_SIZE_MAX = 16 << 20


def load(path: Path) -> RuleSet:
    """Read a mapping and check all of it; compiled, it decides.

    Raises:
        InvalidMapping: the file cannot be read, or something in it is wrong, told with its line.
        MappingExtraMissing: a rule needs what is not installed.
    """
    return load_noting(path, lambda _: None)


def load_noting(path: Path, note: Callable[[Path], object]) -> RuleSet:
    """Read a mapping as `load` does; `note` is called with each file of functions before it is run.

    Raises:
        InvalidMapping, MappingExtraMissing: as `load`.
    """
    path = Path(path)
    if path.suffix == ".py":
        return _load_python(path.resolve())
    if path.suffix != ".toml":
        raise InvalidMapping(str(path), problem="is no mapping; use a file .toml or .py")
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except OSError as error:
        raise InvalidMapping(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidMapping(place=f"{path}, line {line}", problem="is no UTF-8") from error
    return load_text(text, path, note=note)


def load_text(
    text: str,
    path: Path,
    *,
    has_functions: bool = True,
    note: Callable[[Path], object] = lambda _: None,
) -> RuleSet:
    """Read a mapping that is a text.

    Args:
        text: in TOML.
        path: where functions are looked for, and for errors.
        has_functions: whether rules may call any; who does not trust the text says no.
        note: as `load_noting`.

    Raises:
        InvalidMapping, MappingExtraMissing: as `load`.
    """
    if len(text) > _SIZE_MAX:
        raise InvalidMapping(str(path), f"is larger than {_SIZE_MAX >> 20} MiB")
    return _Document(text, path, note, has_functions=has_functions).rule_set()


class _Document:
    def __init__(
        self, text: str, path: Path, note: Callable[[Path], object], *, has_functions: bool
    ) -> None:
        self._path = path
        self._note = note
        self._has_functions = has_functions
        self._toml = TomlDocument(text, str(path), _invalid)

    def rule_set(self) -> RuleSet:
        folder = self._path.resolve().parent

        def find_call(named: object) -> tuple[Callable[..., Any], str, str]:
            if not isinstance(named, str):
                raise InvalidMapping(repr(named), problem='use "clicks.py:enrich"')
            if not self._has_functions:
                problem = "is a function, and none is called here; use `poe mapping dry-run`"
                raise InvalidMapping(repr(named), problem)
            where = named.rpartition(":")[0]
            if where.endswith(".py"):
                self._note(folder / where)
            found = find_function(folder, named)
            return found.function, named, found.sha256

        definition = Definition(self._toml.values, self._refuse, self._where, find_call)
        rules = definition.rule_set()
        try:
            refuse_circles(rules)
            rules.compile()
        except InvalidMapping as error:
            self._refuse(self._place_of(error), error.problem)
        return rules

    def _place_of(self, error: InvalidMapping) -> Place:
        """Return the place in the file of what an error names."""
        places: dict[str, Place] = {f"rule {OTHERWISE!r}: ": (OTHERWISE,)}
        # Of two rules of a name, the second is to blame.
        for at, each in enumerate(self._toml.values.get("rule", [])):
            places[f"rule {each['id']!r}: "] = ("rule", at)
        for head, place in places.items():
            if error.place.startswith(head):
                steps = error.place.removeprefix(head).split(".")
                return (*place, *(int(each) if each.isdecimal() else each for each in steps))
        return tuple(error.place.split("."))

    def _where(self, place: Place) -> str:
        line = self._toml.line_of(place)
        return str(self._path) if line is None else f"{self._path}, line {line}"

    def _refuse(self, place: Place, why: str) -> NoReturn:
        shown = self._shown(place)
        where = f"{self._where(place)}: {shown}" if shown else self._where(place)
        raise InvalidMapping(where, why) from None

    def _shown(self, place: Place) -> str:
        """Return a place for people: `rule 'vip': body.amount`."""
        match place:
            case ["rule" | "test" as kind, int(at), *rest]:
                table = self._toml.values[kind][at]
                name = table.get("id") if isinstance(table, dict) else None
                head = f"rule {name!r}" if isinstance(name, str) else f"{kind} {at + 1}"
                tail = ".".join(map(str, rest))
                return f"{head}: {tail}" if tail else head
        return ".".join(map(str, place))


def _invalid(path: str, line: int | None, why: str) -> InvalidMapping:
    return InvalidMapping(path if line is None else f"{path}, line {line}", f"is no TOML: {why}")


def _load_python(path: Path) -> RuleSet:
    names = run_file(path)
    found = {id(value): value for value in names.values() if isinstance(value, Mapping)}
    if len(found) != 1:
        problem = f"holds {len(found)} mappings; assign one poe.mapping.Mapping to a name"
        raise InvalidMapping(str(path), problem)
    try:
        return next(iter(found.values())).rule_set(path)
    except InvalidMapping as error:
        raise InvalidMapping(place=f"{path}: {error.place}", problem=error.problem) from error
