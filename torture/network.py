"""A network of our own: a namespace that has a loopback device alone, which can be made bad.

Whatever the calling thread starts, and each socket that it opens, is in it; nothing outside is.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator

_CLONE_NEWNET = 0x40000000
_TOOLS = ("unshare", "ip", "nft", "tc")
_PACKET_BYTES = 1500


class Network:
    """The loopback device of a namespace; `heal` makes it good again."""

    def __init__(self) -> None:
        # Packets of Ethernet's size, not of 64 KiB as a loopback device has them.
        _run("ip", "link", "set", "lo", "mtu", str(_PACKET_BYTES), "up")
        _run("nft", "add", "table", "ip", "torture")
        _run("nft", "add chain ip torture input { type filter hook input priority 0; }")

    def lose(self, percent: int) -> None:
        """Lose so many of a hundred packets, in both directions."""
        _run("nft", f"add rule ip torture input numgen random mod 100 < {percent} drop")

    def cut(self) -> None:
        """Lose all packets."""
        _run("nft", "add rule ip torture input drop")

    def slow_down(self, rate: str) -> None:
        """Carry so much only, such as `1mbit`; what comes faster waits, then it is lost."""
        _run("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", rate,
             "burst", "16kb", "latency", "400ms")  # fmt: skip

    def heal(self) -> None:
        """Carry everything."""
        _run("nft", "flush", "table", "ip", "torture")
        with contextlib.suppress(subprocess.CalledProcessError):  # it was not slow
            _run("tc", "qdisc", "delete", "dev", "lo", "root")


@contextlib.contextmanager
def own_network() -> Iterator[Network]:
    """Move the calling thread to a network of its own, and back; the last to leave removes it."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _call("unshare", _CLONE_NEWNET)
        try:
            yield Network()
        finally:
            _call("setns", home, _CLONE_NEWNET)
    finally:
        os.close(home)


def reason_for_none() -> str | None:
    """Tell why there can be no network of our own; None when there can."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    run = subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True)
    return "network namespaces are not permitted" if run.returncode else None


def _call(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
