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


def key_to(cluster: str, host: str = "*", node: str = "*", sender: str = "*") -> str:
    """Return the key on which a node of a host hears what a sender's host puts."""
    return f"{key_prefix(cluster)}/to/{host}/{node}/{sender}"


def key_to_all(cluster: str, sender: str = "*") -> str:
    """Return the key on which all nodes hear what a sender's host publishes."""
    return f"{key_prefix(cluster)}/all/{sender}"


def key_of_token(cluster: str = "*", host: str = "*", said: str = "*") -> str:
    """Return the key of the token by which a node of a host says that it is there."""
    return f"{key_prefix(cluster)}/node/{host}/{said}"


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
        "access_control": _access(options.cluster, options.cluster_nodes),
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


def _access(cluster: str, hosts: Sequence[str]) -> dict[str, Any]:
    """Let through what is of this cluster; of others, only that they are there.

    Where hosts are named, each of them only says and hears what it is to, by the common name of the
    certificate that its end of a connection has shown.
    """
    both, put, told = ["ingress", "egress"], "put", "liveliness_token"
    looks = ["liveliness_query", "declare_liveliness_subscriber"]
    heard = "declare_subscriber"
    to_all, tokens = key_to_all(cluster), key_of_token()
    rules = [_rule("looks", both, looks, tokens), _rule("to-all", ["ingress"], [heard], to_all)]
    policies = [{"rules": ["looks", "to-all", "own"], "subjects": ["all"]}]
    subjects: list[dict[str, Any]] = [{"id": "all"}]
    if not hosts:
        rules += [_rule("own", both, [put, heard, told], key_to(cluster), to_all, tokens)]
    else:
        rules += [_rule("own", ["egress"], [heard, told], key_to(cluster), to_all, tokens)]
    for host in hosts:
        said = key_to(cluster, sender=host), key_to_all(cluster, host)
        mine = key_to(cluster, host)
        rules += [
            _rule(f"said-{host}", ["ingress"], [put], *said),
            _rule(f"there-{host}", ["ingress"], [told], key_of_token(host=host)),
            _rule(f"heard-{host}", ["ingress"], [heard], mine),
            _rule(f"told-{host}", ["egress"], [put], mine, to_all),
        ]
        subjects.append({"id": host, "cert_common_names": [host]})
        names = [f"{what}-{host}" for what in ("said", "there", "heard", "told")]
        policies.append({"rules": names, "subjects": [host]})
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }


def _rule(name: str, flows: list[str], messages: list[str], *keys: str) -> dict[str, Any]:
    return {
        "id": name,
        "permission": "allow",
        "flows": flows,
        "messages": messages,
        "key_exprs": list(keys),
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
