"""Writes `docs/api/*.md` from docstrings and signatures: `python -m tools.api_reference`.

Every name in `__all__` of a package is a heading. griffe reads the sources without importing them;
a test compares the committed pages.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import griffe

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "api"
PACKAGES = (
    "poe",
    "poe.actors",
    "poe.client",
    "poe.security",
    "poe.supervision",
    "poe.tables",
    "poe.testing",
    "poe.thespian",
)

# Members that a class has from bases that have no page of their own. The rest of those bases is
# the runtime's.
INHERITED = {
    "HostedSystem": ("SystemCalls",),
    "LoopSystem": ("SystemCalls",),
}

# What a class has for the runtime, or only because its base has it.
HIDDEN = {
    *(f"Supervisor.{name}" for name in ("init", "handle_call", "handle_cast", "handle_info")),
    *("Supervisor.terminate", "Crash.enter", "LoopSystem.outcome"),
}
FOR_OTHERS = {"ThespianBase"}
"""Classes whose members are what somebody else's code asks for."""

NOT_MADE_BY_USERS = {"AsyncSocket", "Call", "Crash", "Timer"}
LATER = "Raises (when awaited):\n"

Member: TypeAlias = griffe.Object | griffe.Alias

NOTE = "*Made by `python -m tools.api_reference` from the code; do not edit.*"


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for package, text in pages().items():
        (FOLDER / f"{package}.md").write_text(text)


def pages() -> dict[str, str]:
    """Return the text of each page by package."""
    loader = griffe.GriffeLoader(search_paths=[ROOT], docstring_parser=griffe.Parser.google)
    loader.load("poe")
    loader.resolve_aliases()
    modules = loader.modules_collection
    return {package: "\n".join(_page(package, modules[package])) + "\n" for package in PACKAGES}


def _page(package: str, module: griffe.Module) -> Iterator[str]:
    yield f"# {package}"
    yield f"\n{NOTE}"
    yield from _docstring(module)
    for name in sorted(module.exports or (), key=lambda each: str(each).lower()):
        member = module[str(name)]
        target = member.final_target if member.is_alias else member
        yield f"\n## {name}"
        yield from _object(target)


def _object(target: griffe.Object) -> Iterator[str]:
    if isinstance(target, griffe.Class):
        yield from _class(target)
    elif isinstance(target, griffe.Function):
        yield from _function(target)
    else:
        if isinstance(target, griffe.Attribute) and target.value is not None:
            yield from _code(f"{target.name} = {target.value}")
        yield from _docstring(target)


def _class(target: griffe.Class) -> Iterator[str]:
    bases = ", ".join(str(base) for base in target.bases)
    head = f"class {target.name}({bases}):" if bases else f"class {target.name}:"
    init = target.members.get("__init__")
    # The fields of a dataclass are its parameters.
    is_told = not _is_dataclass(target) and target.name not in NOT_MADE_BY_USERS
    if isinstance(init, griffe.Function) and is_told:
        yield from _code(f"{head}\n    {_signature(init)}")
    else:
        yield from _code(f"{head} ...")
    yield from _docstring(target)
    members = [each for each in target.members.values() if _is_public(each)]
    members += _inherited(target)
    members = [each for each in members if f"{target.name}.{each.name}" not in HIDDEN]
    if target.name in FOR_OTHERS:
        members = []
    are_told = _is_dataclass(target) or any("Enum" in str(base) for base in target.bases)
    attributes = [
        each for each in members if _is_attribute(each) and (are_told or each.docstring is not None)
    ]
    if attributes:
        yield ""
        yield from (_bullet(each) for each in attributes)
    for member in members:
        if isinstance(member, griffe.Function):
            yield f"\n### {target.name}.{member.name}"
            yield from _function(member)


def _inherited(target: griffe.Class) -> list[Member]:
    found: list[Member] = []
    for wanted in INHERITED.get(target.name, ()):
        base_name, _, member_name = wanted.partition(".")
        base = next(each for each in target.mro() if each.name == base_name)
        for name, member in base.members.items():
            if _is_public(member) and name not in target.members and member_name in {"", name}:
                found.append(member)
    return found


def _is_public(member: Member) -> bool:
    return not member.name.startswith("_") and not member.is_alias


def _is_attribute(member: Member) -> bool:
    return isinstance(member, griffe.Attribute) and not member.name.startswith("_")


def _is_dataclass(target: griffe.Class) -> bool:
    return any("dataclass" in str(decorator.value) for decorator in target.decorators)


def _bullet(member: Member) -> str:
    assert isinstance(member, griffe.Attribute)
    annotation = f": {member.annotation}" if member.annotation is not None else ""
    value = f" = {member.value}" if member.value is not None else ""
    if "field(" in value:
        value = ""  # a default that is made anew each time
    text = " ".join(member.docstring.value.split()) if member.docstring else ""
    return f"* `{member.name}{annotation}{value}`{' – ' if text else ''}{text}"


def _function(target: griffe.Function) -> Iterator[str]:
    yield from _code(_signature(target))
    yield from _docstring(target)


def _signature(target: griffe.Function) -> str:
    prefix = "async def" if "async" in target.labels else "def"
    return f"{prefix} {target.signature()}: ..."


def _code(text: str) -> Iterator[str]:
    yield f"\n```python\n{text}\n```"


def _docstring(target: griffe.Object) -> Iterator[str]:
    if target.docstring is None:
        return
    for section in target.docstring.parsed:
        if isinstance(section, griffe.DocstringSectionText):
            yield f"\n{_listed(section.value)}"
        elif isinstance(section, griffe.DocstringSectionAdmonition):
            yield f"\n{section.title}: {section.value.contents}"
        else:
            yield f"\n{section.kind.value.capitalize()}:\n"
            for item in section.value:
                label = getattr(item, "name", None) or str(getattr(item, "annotation", ""))
                label = label.strip("()")  # several errors of one meaning are a tuple
                text = " ".join(str(item.description).split())
                yield f"* `{label}`: {text}" if label else f"* {text}"


def _listed(text: str) -> str:
    """Make a list of errors that are raised later, for which griffe has no section."""
    head, mark, items = text.partition(LATER)
    return (
        head + mark + "\n" + re.sub(r"^ {4}(\w+):", r"* `\1`:", items, flags=re.MULTILINE)
        if mark
        else text
    )


if __name__ == "__main__":
    main()
