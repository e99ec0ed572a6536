"""Compiles the C programs of the benchmarks into `bench/build`; without a compiler, none."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "bench" / "build"
OWN = ROOT / "bench"

# The generator and the limit that Poe is compared with; BENCH_SOURCES names another folder.
SHARED = Path(os.environ.get("BENCH_SOURCES", ROOT.parent / "shared" / "bench"))

SOURCES = (
    SHARED / "poeload.c",
    SHARED / "limit.c",
    OWN / "redisload.c",
    OWN / "natsload.c",
)


def build() -> list[str]:
    """Compile what is present and older than its source; return the names that can be run."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    BUILD.mkdir(exist_ok=True)
    for source in SOURCES:
        target = BUILD / source.stem
        if compiler and source.exists() and _is_stale(target, source):
            command = [compiler, "-O2", "-pthread", "-o", str(target), str(source)]
            subprocess.run(command, check=True)
    return [source.stem for source in SOURCES if (BUILD / source.stem).exists()]


def _is_stale(target: Path, source: Path) -> bool:
    newest = max(source.stat().st_mtime, (OWN / "loadgen.h").stat().st_mtime)
    return not target.exists() or target.stat().st_mtime < newest
