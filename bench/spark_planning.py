"""Plans a batch read in a process of its own, as Spark has it done; prints its seconds and bytes.

A process of its own, since nothing else may have grown it before: what counts is the greatest
memory while it plans, above what it held before.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from bench.build import ROOT


def planned(topic: str, **options: str) -> tuple[float, float]:
    """Plan a read of a topic in a new process; return seconds and megabytes."""
    arguments = [f"{key}={value}" for key, value in {"topic": topic, **options}.items()]
    run = subprocess.run(
        [sys.executable, "-m", "bench.spark_planning", *arguments],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = json.loads(run.stdout)
    return found["seconds"], found["bytes"] / 1e6


def main() -> None:
    """Plan with the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_planning")
    parser.add_argument("option", nargs="+", help="of the data source: host=127.0.0.1")
    options = dict(each.split("=", 1) for each in parser.parse_args().option)

    from poe.spark import PoeDataSource  # noqa: PLC0415 - its memory is not the plan's

    source = PoeDataSource(options)
    reader = source.reader(source.schema())
    before = _memory_bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
    begun = time.perf_counter()
    partitions = reader.partitions()
    seconds = time.perf_counter() - begun
    grown = _memory_bytes("VmHWM") - before
    print(json.dumps({"seconds": seconds, "bytes": grown, "partitions": len(partitions)}))


def _memory_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    msg = f"the kernel tells no {field}"
    raise LookupError(msg)


if __name__ == "__main__":
    main()
