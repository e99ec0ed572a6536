"""Pushes the logs of an SSH server and of a web server onto the topics `sshd` and `apache`.

They are real ones of loghub where these are (LOGHUB names the folder), else the samples beside
this file. loghub's two are ten years apart, so the web server's is moved by whole days until it
ends on the day of the other, as if both were of one machine. A line at the end of the day follows:
in event time it is never later than the last line, so that without it the last window stays open.

usage: python examples/spark/push_logs.py [--port 5555] [--sample]
"""

import argparse
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import poe

HERE = Path(__file__).resolve().parent
LOGHUB = Path(os.environ.get("LOGHUB", HERE.parents[2] / "shared" / "data" / "loghub"))
YEAR = 2015
"""Of the SSH server's log: syslog writes none."""
SSH_TIME, WEB_TIME = "%Y %b %d %H:%M:%S", "[%a %b %d %H:%M:%S %Y"


def read_lines(*, is_sample: bool) -> tuple[list[str], list[str]]:
    """Return the lines of the SSH server's log and of the web server's."""
    files = [LOGHUB / "OpenSSH_2k.log", LOGHUB / "Apache_2k.log"]
    if is_sample or not all(file.exists() for file in files):
        files = [HERE / "sshd.log", HERE / "apache.log"]
    ssh, web = (
        [line.strip() for line in file.read_text().split("\n") if line.strip()] for file in files
    )
    return ssh, web


def time_of(text: str, form: str) -> datetime:
    """Return the time at the beginning of a line."""
    return datetime.strptime(text, form).replace(tzinfo=UTC)


def moved(lines: list[str], day: datetime) -> Iterator[str]:
    """Move the web server's lines by whole days, so that the last is of the given day."""
    times = [time_of(line.partition("]")[0], WEB_TIME) for line in lines]
    shift = day - times[-1].replace(hour=0, minute=0, second=0)
    for time, line in zip(times, lines, strict=True):
        yield (time + shift).strftime(WEB_TIME) + "]" + line.partition("]")[2]


def day_of_logs(*, is_sample: bool = False) -> tuple[list[str], list[str]]:
    """Return what is pushed onto `sshd` and onto `apache`."""
    ssh, web = read_lines(is_sample=is_sample)
    day = time_of(f"{YEAR} {ssh[-1][:15]}", SSH_TIME).replace(hour=0, minute=0, second=0)
    end = day.replace(hour=23, minute=59, second=59)
    ssh.append(f"{end:%b %e %H:%M:%S} gate -- MARK --")
    restart = "[notice] Graceful restart requested, doing restart"
    return ssh, [*moved(web, day), f"{end.strftime(WEB_TIME)}] {restart}"]


def main() -> None:
    """Push both logs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=5555)
    parser.add_argument("--sample", action="store_true", help="the samples, even where loghub is")
    arguments = parser.parse_args()
    logs = zip(("sshd", "apache"), day_of_logs(is_sample=arguments.sample), strict=True)
    with poe.protocol.socket(port=arguments.port) as socket:
        for topic, lines in logs:
            socket.write(topic, [line.encode() for line in lines])
            print(f"{topic}: {len(lines)} lines")


if __name__ == "__main__":
    main()
