"""The settings of zenoh for a node: what is reached, by whom, and how long anything waits.

Each that is not zenoh's own default is there for a reason that was measured, or has a hazard that
it keeps away; `tests/cluster/fabric/test_zenoh_config.py` holds them.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

from poe.cluster.fabric.interface import PAYLOAD_MAX_BYTES
from poe.cluster.options import ClusterOptions

LEASE_MS: Final = 2_000
"""Without a sign of life for so long, a peer is lost."""
WAIT_US: Final = 200_000
"""What is sent waits so long for a connection that takes nothing, and is dropped then. Connections
are not closed for it, which takes zenoh up to 10 s, in which it notices no other loss either."""
WAIT_WHOLE_US: Final = 1_000_000
"""The same for all parts of one message together."""
KEEP_ALIVES: Final = 4
RETRY_FIRST_MS: Final = 200
RETRY_LAST_MS: Final = 1_000
HEADERS_MAX_BYTES: Final = 64 * 1024
"""What zenoh wraps a payload in, and more."""
RECEIVERS: Final = 32
"""Threads that receive. A connection that expires keeps one of them busy for up to 10 s; with fewer
than connections that expire at a time, the last of these are noticed as much later."""
RUNTIME: Final = f"(rx: (worker_threads: {RECEIVERS}))"
"""For the variable ZENOH_RUNTIME, which zenoh reads once."""


def key_prefix(cluster: str) -> str:
    """Return what all keys of a cluster begin with."""
    return f"poe/{cluster}"


def token_keys(cluster: str = "*") -> str:
    """Return the keys of the tokens by which nodes say that they are there."""
    return f"poe/{cluster}/node/*"


def settings_of(options: ClusterOptions, introduced: Sequence[str] | None = None) -> dict[str, Any]:
    """Return zenoh's settings, nested as in its files, for a node that is in a cluster.

    With nodes that are to be introduced, for a session that does that: it listens nowhere, and
    connects to this node and to them.
    """
    assert options.cluster is not None
    scheme = "tcp" if options.cluster_certificate is None else "tls"
    listens = [options.locator] if introduced is None else []
    seeds = [seed for seed in options.seeds if seed != options.locator]
    reached = (
        seeds if introduced is None else [options.locator, *options.with_known(introduced).seeds]
    )
    return {
        "mode": options.cluster_mode,
        "listen": {"endpoints": [f"{scheme}/{each}" for each in listens], "exit_on_failure": True},
        "connect": {
            "endpoints": [f"{scheme}/{each}" for each in reached],
            "timeout_ms": -1,
            "exit_on_failure": False,
            "retry": {
                "period_init_ms": RETRY_FIRST_MS,
                "period_max_ms": RETRY_LAST_MS,
                "period_increase_factor": 2,
            },
        },
        "scouting": {
            "multicast": {"enabled": False},
            "gossip": {
                "enabled": True,
                # By default routers connect to their seeds alone: a star, and not a mesh.
                "autoconnect": {"router": ["router"], "peer": ["peer"]},
            },
        },
        "timestamping": {"enabled": True},
        "adminspace": {"enabled": False},
        "access_control": _access(options.cluster),
        "transport": {
            # By way of shared memory nothing larger than 3 KB would see a cut, or a slow link.
            "shared_memory": {"enabled": False},
            "link": {
                "protocols": [scheme],
                "tx": {
                    "lease": LEASE_MS,
                    "keep_alive": KEEP_ALIVES,
                    "queue": {
                        "congestion_control": {
                            "drop": {
                                "wait_before_drop": WAIT_US,
                                "max_wait_before_drop_fragments": WAIT_WHOLE_US,
                            },
                            # Nothing is sent so; what zenoh itself sends may be.
                            "block": {"wait_before_close": WAIT_US},
                        }
                    },
                },
                "rx": {"max_message_size": PAYLOAD_MAX_BYTES + HEADERS_MAX_BYTES},
                **_tls(options),
            },
        },
    }


def json_of(options: ClusterOptions, introduced: Sequence[str] | None = None) -> str:
    """Return the settings as zenoh reads them."""
    return json.dumps(settings_of(options, introduced))


def _access(cluster: str) -> dict[str, Any]:
    """Let through what is of this cluster; of others, only that they are there."""
    tokens = ["liveliness_token", "liveliness_query", "declare_liveliness_subscriber"]
    rule = {"permission": "allow", "flows": ["ingress", "egress"]}
    own = {
        "id": "own",
        "messages": ["put", "declare_subscriber"],
        "key_exprs": [f"{key_prefix(cluster)}/to/*", f"{key_prefix(cluster)}/all"],
    }
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": [
            rule | own,
            rule | {"id": "tokens", "messages": tokens, "key_exprs": [token_keys()]},
        ],
        "subjects": [{"id": "all"}],
        "policies": [{"rules": ["own", "tokens"], "subjects": ["all"]}],
    }


def _tls(options: ClusterOptions) -> dict[str, Any]:
    """Have both sides of a connection show a certificate of the cluster's authority."""
    if options.cluster_certificate is None:
        return {}
    certificate, key = str(options.cluster_certificate), str(options.cluster_key)
    return {
        "tls": {
            "root_ca_certificate": str(options.cluster_ca),
            "listen_certificate": certificate,
            "listen_private_key": key,
            "connect_certificate": certificate,
            "connect_private_key": key,
            "enable_mtls": True,
            "verify_name_on_connect": True,
            "close_link_on_expiration": True,
        }
    }
