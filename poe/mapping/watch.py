"""Sees whether the file of a mapping, or one with functions of it, has changed."""

from pathlib import Path

from poe.mapping.document import load_noting
from poe.mapping.function_file import check_as_imported, file_of
from poe.mapping.rule import Call
from poe.mapping.rule_set import RuleSet
from poe.security.file_stamp import FileStamp, stamps_of


class Watch:
    """The file of a mapping.

    Attributes:
        rules: what it held when this was made.

    Raises:
        InvalidMapping, MappingExtraMissing: on construction, that cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: dict[Path, FileStamp | None] = {}
        self.rules = self._read()

    def __call__(self) -> RuleSet | None:
        """Return other rules, if there are some; a file that was told wrong is told once.

        Raises:
            InvalidMapping, MappingExtraMissing: what is there now cannot be used.
        """
        if stamps_of(self._seen) == tuple(self._seen.values()):
            return None
        return self._read()

    def _read(self) -> RuleSet:
        # Before they are read: what is written meanwhile, or mends what is wrong, is seen next.
        self._seen = {}
        self._note(self._path)
        rules = load_noting(self._path, self._note)
        self._note_functions(rules)
        for path in self._seen:
            check_as_imported(path)
        return rules

    def _note(self, path: Path) -> None:
        if path not in self._seen:
            [self._seen[path]] = stamps_of([path])

    def _note_functions(self, rules: RuleSet) -> None:
        folder = self._path.resolve().parent
        for each in [*(rule.fate for rule in rules.rules), rules.otherwise]:
            if isinstance(each, Call):
                self._note(file_of(each.function) or folder / each.name.partition(":")[0])
