"""Every single change to the decision is noticed by one of its tests.

Each mutant is `poe/security/policy.py` with one thing changed in it: a comparison, a constant, a
condition, a statement. Those of the tests of `test_policy.py` that are no properties are then run
on the mutant, and one of them has to fail.
"""

import ast
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from poe.security import policy
from tests.security import test_policy

SOURCE = Path(policy.__file__).read_text()
COMPARISONS = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Lt: ast.LtE,
}
OPERATORS = {ast.BitAnd: ast.BitOr, ast.Add: ast.Sub}
NAMES = {"startswith": "endswith", "any": "all", "True": "False"}
UNCHANGED = {"annotation", "returns", "decorator_list"}
"""Fields of what is there for people and checkers."""


def is_left_alone(node: ast.AST) -> bool:
    is_text_for_people = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return is_text_for_people or isinstance(node, ast.Import | ast.ImportFrom)


class Place(NamedTuple):
    """Where a node stands in the tree."""

    parent: ast.AST
    field: str
    at: int | None
    """In a list of nodes."""

    def put(self, node: ast.AST) -> None:
        if self.at is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.at] = node


def places(parent: ast.AST) -> Iterator[tuple[Place, ast.AST]]:
    """All of what is run, with its place."""
    for name, value in ast.iter_fields(parent):
        nodes = enumerate(value) if isinstance(value, list) else [(None, value)]
        for at, node in nodes if name not in UNCHANGED else ():
            if isinstance(node, ast.AST) and not is_left_alone(node):
                yield Place(parent, name, at), node
                yield from places(node)


def other_constants(value: object) -> list[str | bytes | int]:
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1]
        case str():
            return [f"{value}x", *([""] if value else [])]
        case bytes():
            return [value + b"x", *([b""] if value else [])]
    return [0]


def changed_expressions(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Constant(value):
            return [ast.Constant(each) for each in other_constants(value)]
        case ast.Compare(left, [operator], comparators):
            return [ast.Compare(left, [COMPARISONS[type(operator)]()], comparators)]
        case ast.UnaryOp(ast.Not(), operand):
            return [operand]
        case ast.BinOp(left, operator, right):
            return [left, right, ast.BinOp(left, OPERATORS[type(operator)](), right)]
        case ast.IfExp(_, body, orelse):
            return [body, orelse]
    return []


def changed_names(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Attribute(value, name, context) if name in NAMES:
            return [ast.Attribute(value, NAMES[name], context)]
        case ast.Name(name, context) if name in NAMES:
            return [ast.Name(NAMES[name], context)]
    return []


def with_one_less(node: ast.AST) -> list[ast.AST]:
    def less(parts: list[ast.expr]) -> list[list[ast.expr]]:
        return [parts[:at] + parts[at + 1 :] for at in range(len(parts)) if len(parts) > 1]

    match node:
        case ast.BoolOp(operator, values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            fewer = [each if len(each) > 1 else each * 2 for each in less(values)]
            return [ast.BoolOp(other, values), *(ast.BoolOp(operator, each) for each in fewer)]
        case ast.Tuple(values, ast.Load() as load) | ast.List(values, ast.Load() as load):
            return [type(node)(each, load) for each in less(values)]
        case ast.Set(values):
            return [ast.Set(each) for each in less(values)]
        case ast.comprehension(target, found, [_], is_async):
            return [ast.comprehension(target, found, [], is_async)]
    return []


def changed_statements(node: ast.AST) -> list[ast.stmt]:
    match node:
        case ast.AugAssign(target, _, value):
            return [ast.Assign([target], value), ast.Pass()]
        case ast.If(test, body, orelse):
            tests = [ast.Constant(True), ast.Constant(False), ast.UnaryOp(ast.Not(), test)]
            return [ast.If(each, body, orelse) for each in tests]
        case ast.Return(ast.expr() as value):
            return [ast.Return(ast.Constant(None)), ast.Return(ast.UnaryOp(ast.Not(), value))]
        case ast.Expr() | ast.For() | ast.Raise():
            return [ast.Pass()]
    return []


def changes(node: ast.AST) -> list[ast.AST]:
    """What else could stand there."""
    kinds = (changed_expressions, changed_names, with_one_less, changed_statements)
    return [new for kind in kinds for new in kind(node)]


def mutants() -> Iterator[tuple[str, ast.Module]]:
    """What is changed, and one tree, which is this mutant until the next one is asked for."""
    tree = ast.parse(SOURCE)
    for place, node in list(places(tree)):
        for new in changes(node):
            place.put(ast.copy_location(new, node))
            line = getattr(node, "lineno", None)
            yield (
                f"{line}: {ast.unparse(node)}  ->  {ast.unparse(new)}",
                ast.fix_missing_locations(tree),
            )
        place.put(node)


def sentences() -> list[partial[None]]:
    """The tests that are no properties, each with each of its arguments."""
    found = []
    for name, test in vars(test_policy).items():
        if not name.startswith("test_") or hasattr(test, "hypothesis"):
            continue
        marks = [each for each in getattr(test, "pytestmark", []) if each.name == "parametrize"]
        if not marks:
            found.append(partial(test))
        for mark in marks:
            names, values = mark.args
            for value in values:
                keywords = (
                    {names: value}
                    if isinstance(names, str)
                    else dict(zip(names, value, strict=True))
                )
                found.append(partial(test, **keywords))
    return found


def is_noticed(tree: ast.Module, tests: list[partial[None]], monkeypatch) -> bool:
    """Whether a test fails when it is run on this policy."""
    code = compile(tree, policy.__file__, "exec")
    mutant = ModuleType(policy.__name__)
    # A dataclass looks for the module that it is of.
    monkeypatch.setitem(sys.modules, policy.__name__, mutant)
    with suppress(Exception, pytest.fail.Exception):
        exec(code, vars(mutant))
        for name in ("Grant", "Policy", "resource_text"):
            monkeypatch.setattr(test_policy, name, getattr(mutant, name))
        for test in tests:
            test()
        return False
    return True


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* with a literal")
def test_every_mutant_of_the_policy_is_noticed(monkeypatch):
    tests = sentences()
    assert not is_noticed(ast.parse(SOURCE), tests, monkeypatch)
    noticed = {name: is_noticed(tree, tests, monkeypatch) for name, tree in mutants()}
    assert [name for name in noticed if not noticed[name]] == []
    assert len(noticed) > 200
