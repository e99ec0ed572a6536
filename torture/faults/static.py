"""What can be told without running: types, security rules, no code from data, pinned packages."""

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from torture.scenario import Run, Trial

_ROOT = Path(__file__).parent.parent.parent
_BANNED_MODULES = frozenset({"pickle", "marshal", "shelve", "dill", "subprocess"})
_EXCEPTIONS = {
    # Actors in several processes of one user, on Thespian's own bases; no client ever comes there.
    "poe/thespian/hosted/pickling.py": {"pickle"},
    "poe/thespian/hosted/queue_base.py": {"pickle"},
    # A program and its arguments as a list, which no client chooses; never by a shell.
    "poe/actors/process_watch.py": {"subprocess"},
    "poe/cli/work.py": {"subprocess"},
    # The engine that this node runs is asked its version, by its path.
    "poe/cluster/log/nats_server.py": {"subprocess"},
    # A function of the mapping's own files, in a child of this process, by pipes of its own.
    "poe/mapping/function_process.py": {"pickle", "subprocess"},
}
_BANNED_CALLS = frozenset({"eval", "exec", "compile", "__import__", "system", "popen"})


def play(run: Run) -> None:
    """Make one check in each trial."""
    checks: list[Callable[[Trial], None]] = [_types, _rules, _no_code_from_data, _pinned]
    for number, check in enumerate(checks):
        run.one(number, check)


def _types(trial: Trial) -> None:
    _expect_success(trial, "mypy", "poe")


def _rules(trial: Trial) -> None:
    _expect_success(trial, "ruff", "check", "--no-cache", "poe")


def _expect_success(trial: Trial, program: str, *arguments: str) -> None:
    command = [sys.executable, "-m", program, *arguments]
    run = subprocess.run(command, cwd=_ROOT, check=False, capture_output=True, text=True)
    told = (run.stdout + run.stderr).strip().splitlines()
    trial.expect(is_true=run.returncode == 0, otherwise=f"{program}: {told[-1:]}")


def _no_code_from_data(trial: Trial) -> None:
    """Nothing that is shipped makes code of data, or starts a program, but for the exceptions."""
    for path in sorted((_ROOT / "poe").rglob("*.py")):
        module = str(path.relative_to(_ROOT))
        nodes = list(ast.walk(ast.parse(path.read_text())))
        used = {name: node for node in nodes for name in _named(node)}
        for name in used.keys() - _EXCEPTIONS.get(module, set()):
            line = getattr(used[name], "lineno", 0)
            trial.failures.append(f"{module}:{line} uses {name}")
        trial.note(modules=1)


def _named(node: ast.AST) -> list[str]:
    """Tell the banned names in a node."""
    match node:
        case ast.Import(names=names):
            return [each.name for each in names if each.name in _BANNED_MODULES]
        case ast.ImportFrom(module=module) if module in _BANNED_MODULES:
            return [module]
        case ast.Call(func=ast.Name(id=name)) if name in _BANNED_CALLS:
            return [name]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="os"), attr=name)):
            return [name] if name in _BANNED_CALLS else []
        case _:
            return []


def _pinned(trial: Trial) -> None:
    """Every requirement has an exact version and a hash."""
    locks = (_ROOT / "requirements" / name for name in ("ci.txt", "extras.txt"))
    text = "\n".join(lock.read_text() for lock in locks).replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] != "#"]
    for line in lines:
        is_pinned = "==" in line and "--hash=sha256:" in line
        trial.expect(is_true=is_pinned, otherwise=f"not pinned: {line[:60]}")
    trial.note(requirements=len(lines))
