"""A node in a process of its own, which answers whatever it is asked in capitals.

usage: python -m tests.cluster.fabric.zenoh_node HOST PORT [SEED]
"""

import signal
import sys

from poe.cluster.options import ClusterOptions
from tests.cluster.fabric.listener import Listener


def main(host: str, port: str, *seeds: str) -> None:
    """Print who it is, and wait for its end."""
    options = ClusterOptions(
        cluster="c", cluster_host=host, cluster_port=int(port), seeds=seeds, node_name="child"
    )
    listener = Listener(options)
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM})
    listener.close()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    main(*sys.argv[1:])
