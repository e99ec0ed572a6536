"""The options of a cluster: what is allowed, wherever it stands, and what is loaded for it."""

import subprocess
import sys

import pytest

from poe.cluster.options import ClusterOptions
from poe.config import Config
from poe.errors import OptionError


def load(arguments=None, environment=None, path=None):
    return Config.load(arguments or {}, environment or {}, path).cluster


@pytest.mark.parametrize("source", ["argument", "tuple", "environment", "file"])
def test_seeds_stand_where_other_options_do(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    seeds = ["127.0.0.1:1", "[::1]:2"]
    if source == "file":
        (tmp_path / "poe.toml").write_text(f'cluster = "c"\nseeds = {seeds}\n')
        found = load()
    elif source == "environment":
        found = load({}, {"POE_CLUSTER": "c", "POE_SEEDS": ", ".join(seeds)})
    else:
        found = load({"cluster": "c", "seeds": tuple(seeds) if source == "tuple" else seeds})
    assert found.seeds == tuple(seeds)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"cluster": ""}, "cluster"),
        ({"cluster": "a/b"}, "cluster"),
        ({"cluster": "*"}, "cluster"),
        ({"cluster": "a" * 64}, "cluster"),
        ({"cluster": 7}, "cluster"),
        ({"seeds": ["127.0.0.1:1"]}, "cluster"),
        ({"zone": "rack1"}, "cluster"),
        ({"node_name": "ada"}, "cluster"),
        ({"copies": 3}, "cluster"),
        ({"cluster_port": 6001}, "cluster"),
        ({"cluster_mode": "router"}, "cluster"),
        ({"cluster_certificate": "c", "cluster_key": "k", "cluster_ca": "a"}, "cluster"),
        ({"cluster": "c", "seeds": "127.0.0.1:1"}, "seeds"),
        ({"cluster": "c", "seeds": [1]}, "seeds"),
        ({"cluster": "c", "seeds": [""]}, "seeds"),
        ({"cluster": "c", "seeds": ["127.0.0.1"]}, "seeds"),
        ({"cluster": "c", "seeds": ["127.0.0.1:0"]}, "seeds"),
        ({"cluster": "c", "seeds": ["127.0.0.1:70000"]}, "seeds"),
        ({"cluster": "c", "seeds": ["::1:5"]}, "seeds"),
        ({"cluster_port": 0}, "cluster_port"),
        ({"copies": 0}, "copies"),
        ({"copies": 65}, "copies"),
        ({"zone": ""}, "zone"),
        ({"node_name": "a\nb"}, "node_name"),
        ({"cluster_mode": "client"}, "cluster_mode"),
        ({"cluster_certificate": "c.pem"}, "cluster_key"),
        ({"cluster_certificate": "c.pem", "cluster_key": "k.pem"}, "cluster_ca"),
        ({"cluster": "c", "cluster_host": "0.0.0.0"}, "cluster_host"),
        ({"cluster": "c", "cluster_host": "no such host"}, "cluster_host"),
        ({"cluster": "c", "seeds": ["10.255.0.1:5557"]}, "seeds"),
    ],
    ids=lambda value: "-".join(map(str, value.values()))[:40] if isinstance(value, dict) else None,
)
def test_what_no_cluster_can_have_is_refused_by_its_name(arguments, key):
    with pytest.raises(OptionError) as caught:
        load(arguments)
    assert caught.value.key == key


@pytest.mark.parametrize(
    "meant",
    [
        {"insecure": True},
        {"cluster_certificate": "c", "cluster_key": "k", "cluster_ca": "a"},
    ],
    ids=["insecure", "certificates"],
)
def test_others_are_reached_with_certificates_or_where_it_is_meant(meant):
    found = load({"cluster": "c", "cluster_host": "0.0.0.0", "seeds": ["10.255.0.1:5557"], **meant})
    assert found.address.is_public


def test_hosts_of_nodes_stand_where_other_options_do(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    files = {f"POE_CLUSTER_{each}": "x" for each in ("CERTIFICATE", "KEY", "CA")}
    hosts = {"POE_CLUSTER": "c", "POE_CLUSTER_NODES": "127.0.0.1, b.example.com"}
    assert load({}, {**files, **hosts}).cluster_nodes == ("127.0.0.1", "b.example.com")


def test_a_node_is_named_by_where_it_listens_unless_it_has_a_name():
    assert load({"cluster": "c"}).name == "127.0.0.1:5557"
    assert load({"cluster": "c", "cluster_host": "::1"}).name == "[::1]:5557"
    assert load({"cluster": "c", "node_name": "ada"}).name == "ada"


@pytest.mark.slow
def test_who_was_there_once_is_a_seed_after_those_that_were_given():
    options = ClusterOptions(
        cluster="shop", seeds=("a:1",), cluster_host="127.0.0.1", cluster_port=9
    )
    known = ["b:2", "a:1", "no address", "127.0.0.1:9", "b:2", "[::1]:3", "c:99999"]
    assert options.with_known(known).seeds == ("a:1", "b:2", "[::1]:3")
    assert len(options.with_known(f"h{number}:1" for number in range(1000)).seeds) == 33


@pytest.mark.slow
def test_without_a_cluster_nothing_of_one_is_loaded(tmp_path):
    code = f"""
import poe, sys
node = poe.start(dir={str(tmp_path / "data")!r}, port=None)
poe.put("t", b"m")
node.control("tree")
poe.stop()
print(*(name for name in sys.modules if name.startswith(("poe.cluster", "zenoh"))))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert set(run.stdout.split()) == {"poe.cluster", "poe.cluster.options"}
