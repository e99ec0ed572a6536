"""The program that becomes a node's `nats-server`, so that this ends with the node.

The server knows nothing of its parent. What this process has asked of the kernel stays when it
becomes another program, as its pid does.
"""

import os
import sys
from pathlib import Path

from poe.actors import end_with_parent, report_ready

PORTS_SUFFIX = ".ports"
_GO_MEMORY = "384MiB"
"""From there on it collects its garbage more often; no limit."""


def main() -> None:
    """Run a program: the arguments are a folder of files with ports, then its words.

    What an earlier server has said of its ports does not count any more.
    """
    end_with_parent()
    folder, *words = sys.argv[1:]
    for old in Path(folder).glob(f"*{PORTS_SUFFIX}"):
        old.unlink(missing_ok=True)
    os.environ.setdefault("GOMEMLIMIT", _GO_MEMORY)
    report_ready()  # nobody waits for that, and the server does not inherit where it is said
    os.execv(words[0], words)  # noqa: S606 - no shell, and the node has chosen it


if __name__ == "__main__":
    main()
