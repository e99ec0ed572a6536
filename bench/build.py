"""Compiles the C programs of the benchmarks into `bench/build`, as far as that is possible here."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "bench" / "build"
OWN = ROOT / "bench"
PROGRAMS = ("poeload", "limit_loop", "redisload", "natsload", "groupload", "redisgroup")


WITH_TLS = {"poeload_tls": ("poeload", ("-DWITH_TLS", "-lssl", "-lcrypto"))}
"""Programs from the source of another one, with these arguments besides."""


def build() -> dict[str, str]:
    """Compile what is missing or older than its source.

    Returns what cannot be run and why, in a few words each: program -> reason.
    """
    BUILD.mkdir(exist_ok=True)
    reasons = {each: compile_program(OWN / f"{each}.c", BUILD / each) for each in PROGRAMS}
    for program, (source, arguments) in WITH_TLS.items():
        reason = compile_program(OWN / f"{source}.c", BUILD / program, arguments)
        reasons[program] = f"{reason} with TLS: is libssl-dev installed?" if reason else ""
    return {program: reason for program, reason in reasons.items() if reason}


def compile_program(source: Path, target: Path, arguments: Sequence[str] = ()) -> str:
    """Compile a program that is missing or older than its source.

    Returns why it cannot be run, in a few words; empty if it can.
    """
    if not _is_stale(source, target):
        return ""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return "no C compiler"
    # Never an older program under the name of a newer one.
    target.unlink(missing_ok=True)
    command = [compiler, "-O2", "-pthread", "-o", str(target), str(source), *arguments]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    return f"{source.name} does not compile" if run.returncode else ""


def is_built(program: str) -> bool:
    """Whether the program can be run."""
    return (BUILD / program).exists()


def _is_stale(source: Path, target: Path) -> bool:
    if not target.exists():
        return True
    newest = max(source.stat().st_mtime, (OWN / "loadgen.h").stat().st_mtime)
    return target.stat().st_mtime < newest
