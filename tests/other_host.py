"""Another host: a network namespace with a cable to this one. Root alone may make it."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

_DEADLINE_S = 20
# A net of their own for each of several test runs on one machine.
_NET = f"198.18.{os.getpid() % 256}"
_OURS, _THEIRS = f"{_NET}.1", f"{_NET}.2"
_TRY_EACH = """\
import socket, sys
host, *ports = sys.argv[1:]
for port in ports:
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
        print(port)
    except OSError:
        pass
"""


@dataclass(frozen=True, slots=True)
class OtherHost:
    """The other end of the cable."""

    namespace: str

    def reaches(self, ports: Iterable[int]) -> set[int]:
        """Which of this host's ports can be connected to from there."""
        # Without a listener that can be reached, nothing would be said while the cable is cut.
        with socket.create_server(("0.0.0.0", 0)) as control:
            control_port = control.getsockname()[1]
            run = subprocess.run(
                ["ip", "netns", "exec", self.namespace, sys.executable, "-c", _TRY_EACH, _OURS,
                 *map(str, [*ports, control_port])],
                capture_output=True, timeout=60, check=True,
            )  # fmt: skip
        reached = {int(port) for port in run.stdout.split()}
        assert control_port in reached, "the other host reaches nothing at all"
        return reached - {control_port}


@contextlib.contextmanager
def other_host() -> Iterator[OtherHost]:
    """Make the host and the cable; skip the test where that is not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("needs `ip` of iproute2")
    name = f"poe{os.getpid()}"
    try:
        _ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not permitted: {error.stderr.decode().strip()}")
    try:
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("address", "add", f"{_OURS}/30", "dev", name)
        _ip("link", "set", name, "up")
        _ip("-n", name, "address", "add", f"{_THEIRS}/30", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        yield OtherHost(name)
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("link", "delete", name)
        _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=_DEADLINE_S)
