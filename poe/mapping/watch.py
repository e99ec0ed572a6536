"""Sees whether the file of a mapping, or one with functions of it, has changed."""

from pathlib import Path

from poe.mapping.document import load
from poe.mapping.rule import Call
from poe.mapping.rule_set import RuleSet
from poe.security.file_stamp import stamps_of


class Watch:
    """The file of a mapping.

    Args:
        path: of the file.
        rules: what it held when this was made.
    """

    def __init__(self, path: Path, rules: RuleSet) -> None:
        self._path = path
        self._rules = rules
        self._stamps = stamps_of(self._paths())

    def __call__(self) -> RuleSet | None:
        """Return other rules, if there are some; a file that was told wrong is told once.

        Raises:
            InvalidMapping, MappingExtraMissing: what is there now cannot be used.
        """
        stamps = stamps_of(self._paths())
        if stamps == self._stamps:
            return None
        self._stamps = stamps
        rules = load(self._path)
        rules.compile()
        self._rules = rules
        self._stamps = stamps_of(self._paths())
        return rules

    def _paths(self) -> list[Path]:
        fates = [each.fate for each in self._rules.rules] + [self._rules.otherwise]
        names = {each.name.partition(":")[0] for each in fates if isinstance(each, Call)}
        return [self._path, *(self._path.parent / name for name in sorted(names))]
