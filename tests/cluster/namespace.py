"""A network namespace that needs no tidying: the kernel deletes it with the last who uses it."""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_OF_THREAD = "/proc/thread-self/ns/net"
_DEADLINE_S = 20


class Namespace:
    """A network that has a loopback device alone, until it is given others.

    It has no name, but a descriptor of this process: were this one killed, nothing would stay
    behind, and tests beside one another cannot meet in it. Root alone may make it.
    """

    def __init__(self) -> None:
        with _home():
            _call("unshare", _CLONE_NEWNET)
            self._descriptor = os.open(_OF_THREAD, os.O_RDONLY | os.O_CLOEXEC)
            # Addresses of IPv6 are looked for at first, which takes seconds.
            Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        self.ip("link set lo up")

    @property
    def path(self) -> str:
        """Where `ip` finds it."""
        return f"/proc/{os.getpid()}/fd/{self._descriptor}"

    @property
    def id(self) -> int:
        """The number that `/proc/PID/ns/net` of each process in it shows."""
        return os.fstat(self._descriptor).st_ino

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Have the calling thread in it, and all threads, processes and sockets that it makes."""
        with _home():
            _call("setns", self._descriptor, _CLONE_NEWNET)
            yield

    def ip(self, *commands: str) -> None:
        """Run commands of `ip` in it."""
        self.run("ip", "-batch", "-", stdin="\n".join(commands))

    def run(self, *command: str, stdin: str = "") -> None:
        """Run a program in it that must succeed."""
        with self.entered():
            run = subprocess.run(
                command, input=stdin, capture_output=True, text=True,
                timeout=_DEADLINE_S, check=False,
            )  # fmt: skip
        if run.returncode:
            msg = f"{' '.join(command)} of {stdin!r}: {run.stderr.strip()}"
            raise OSError(msg)

    def close(self) -> None:
        """Let go of it; once all processes in it have ended the kernel deletes it."""
        os.close(self._descriptor)


def reason_for_none() -> str | None:
    """Tell why there can be no namespace; None when there can."""
    try:
        Namespace().close()
    except OSError as error:
        return f"network namespaces are not permitted: {error}"
    return None


@contextlib.contextmanager
def _home() -> Iterator[None]:
    """Return the calling thread to where it is now, at the end of the block."""
    home = os.open(_OF_THREAD, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        try:
            _call("setns", home, _CLONE_NEWNET)
        finally:
            os.close(home)


def _call(name: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
