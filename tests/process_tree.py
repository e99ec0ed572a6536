"""What the kernel tells of processes: who descends from whom, and where they listen."""

import ipaddress
import re
from pathlib import Path

_LISTEN = "0A"


def descendants(pid: int) -> list[int]:
    """The processes that `pid` has started, and theirs; those that have ended are left out."""
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(word) for word in listing.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
        for child in children:
            if is_running(child):
                found += [child, *descendants(child)]
    return found


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def listeners(pid: int) -> set[tuple[str, int]]:
    """Host and port of each TCP socket on which a process listens."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink()))
        except FileNotFoundError:
            continue
        inodes |= {match[1]} if match else set()
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in inodes:
                host, _, port = fields[1].partition(":")
                found.add((_address(host), int(port, 16)))
    return found


def _address(digits: str) -> str:
    """Decode an address, which /proc shows as words of 32 bits in the machine's order."""
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(b"".join(words)))
