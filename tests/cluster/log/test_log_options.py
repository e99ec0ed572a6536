"""The options of the replicated log: what is allowed, and what follows from others."""

from pathlib import Path

import pytest

from poe.cluster.log.engine import ENTRY_MAX_BYTES
from poe.cluster.log.nats_target import Login, OutsideServers
from poe.cluster.options import ClusterOptions
from poe.config import Config
from poe.errors import LogEngineUnfit, OptionError
from tests.tls import Certificates


def load(**arguments):
    return Config.load({"cluster": "c", **arguments}, {}).cluster


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"cluster": None, "log_engine": "nats"}, "cluster"),
        ({"cluster": None, "log_bytes_max": 1 << 27}, "cluster"),
        ({"log_engine": ""}, "log_engine"),
        ({"log_engine": "kafka"}, "log_engine"),
        ({"log_engine": "nats://h"}, "log_engine"),
        ({"log_engine": "nats://127.0.0.1:70000"}, "log_engine"),
        ({"log_engine": "nats://user:word@h:1"}, "log_engine"),
        ({"log_engine": "nats://127.0.0.1:1,"}, "log_engine"),
        ({"log_engine": "nats://10.255.0.1:4222"}, "log_engine"),
        ({"log_port": 7}, "log_engine"),
        ({"log_seeds": ["h:1"]}, "log_engine"),
        ({"log_credentials": "f"}, "log_engine"),
        ({"log_engine": "nats://127.0.0.1:1", "log_port": 7}, "log_engine"),
        ({"log_engine": "nats", "log_credentials": "f"}, "log_engine"),
        ({"log_engine": "nats", "log_port": 0}, "log_port"),
        ({"log_engine": "nats", "log_port": 65536}, "log_port"),
        ({"log_engine": "nats", "cluster_port": 65000}, "log_port"),
        ({"log_engine": "nats", "log_port": 5557}, "log_port"),
        ({"log_engine": "nats", "log_seeds": ["h"]}, "log_seeds"),
        ({"log_engine": "nats", "seeds": ["127.0.0.1:65000"]}, "log_seeds"),
        ({"log_engine": "nats", "log_seeds": ["10.255.0.1:5557"]}, "log_seeds"),
        ({"log_bytes_max": 1 << 24}, "log_bytes_max"),
    ],
    ids=lambda value: "-".join(map(str, value.values()))[:40] if isinstance(value, dict) else None,
)
def test_what_no_engine_can_be_is_refused_by_its_name(arguments, key):
    with pytest.raises(OptionError) as caught:
        load(**arguments)
    assert caught.value.key == key


def test_the_engine_remembers_several_of_the_largest_puts():
    """It forgets one that is larger than all that it remembers as it is stored: nobody gets it."""
    with pytest.raises(OptionError, match="log_bytes_max") as caught:
        load(log_engine="nats", log_bytes_max=4 * ENTRY_MAX_BYTES - 1)
    assert caught.value.key == "log_bytes_max"
    assert load(log_bytes_max=4 * ENTRY_MAX_BYTES).log_bytes_max == 4 * ENTRY_MAX_BYTES


@pytest.mark.parametrize("engine", ["nats://ann:pen,cil@h:1", "tls://a:1,nats://ann:pen,cil@h:1"])
def test_a_secret_in_a_url_of_an_engine_is_hidden_and_its_place_named(engine):
    with pytest.raises(OptionError, match=r"//\(hidden\)@h:1'.*the file of log_credentials") as it:
        load(log_engine=engine)
    assert "cil" not in str(it.value)


def test_the_engine_of_other_nodes_listens_above_their_port():
    found = load(log_engine="nats", seeds=["127.0.0.1:7000", "[::1]:7001"], cluster_port=7002)
    assert found.log_locator == "127.0.0.1:8002"
    assert found.log_routes == ("127.0.0.1:8000", "[::1]:8001")
    # Nodes that it remembers are as good as seeds.
    known = found.with_known(["127.0.0.1:65000", "127.0.0.1:7003"])
    assert known.log_routes[2:] == ("127.0.0.1:8003",)
    given = load(log_engine="nats", seeds=["127.0.0.1:7000"], log_seeds=["[::1]:9"], log_port=10)
    assert (given.log_locator, given.log_routes) == ("127.0.0.1:10", ("[::1]:9",))


@pytest.mark.parametrize("meant", [{"insecure": True}, {}], ids=["insecure", "tls"])
def test_servers_elsewhere_are_reached_with_tls_or_where_it_is_meant(meant):
    scheme = "nats" if meant else "tls"
    engine = f"{scheme}://10.255.0.1:4222, {scheme}://[::1]:4222"
    found = load(log_engine=engine, **meant)
    assert found.log_urls == (f"{scheme}://10.255.0.1:4222", f"{scheme}://[::1]:4222")
    assert load(log_engine="nats").log_urls == ()
    assert load().log_urls == ()


def outside(**given) -> OutsideServers:
    return OutsideServers(ClusterOptions(cluster="c", **given))


@pytest.mark.parametrize(
    ("text", "login"),
    [
        ("ada:se:cret\n", Login("ada", "se:cret")),
        ("a-token\n", Login(token="a-token")),
    ],
)
def test_servers_are_shown_what_the_file_of_credentials_says(tmp_path, text, login):
    path = tmp_path / "log.credentials"
    path.write_text(text)
    target = outside(log_engine="nats://127.0.0.1:4222", log_credentials=path).target()
    assert target.login == login
    assert (target.system, target.tls) == (None, None)
    assert text.strip() not in repr(target)


@pytest.mark.parametrize("is_installed", [True, False])
def test_credentials_that_sign_need_what_signs(tmp_path, monkeypatch, is_installed):
    found = object() if is_installed else None
    monkeypatch.setattr("poe.cluster.log.nats_target.find_spec", lambda name: found)
    path = tmp_path / "log.creds"
    path.write_text("-----BEGIN NATS USER JWT-----\neyJ\n------END NATS USER JWT------\n")
    servers = outside(log_engine="nats://127.0.0.1:4222", log_credentials=path)
    if is_installed:
        assert servers.target().login == Login(credentials=path)
    else:
        with pytest.raises(LogEngineUnfit, match="pip install nkeys"):
            servers.target()


def test_servers_with_tls_are_shown_the_certificate_of_the_node(tmp_path):
    certificates = Certificates.make(tmp_path)
    files = {
        "cluster_certificate": certificates.file("server.pem"),
        "cluster_key": certificates.file("server.key"),
        "cluster_ca": certificates.file("ca.pem"),
    }
    target = outside(log_engine="tls://127.0.0.1:4222", **files).target()
    assert target.tls is not None
    assert len(target.tls.get_ca_certs()) == 1


@pytest.mark.parametrize("key", ["log_credentials", "cluster_ca"])
def test_a_file_that_is_not_there_is_named(key):
    files = dict.fromkeys(("cluster_certificate", "cluster_key", "cluster_ca"), Path("/no/such"))
    given = {"log_credentials": Path("/no/such")} if key == "log_credentials" else files
    with pytest.raises(LogEngineUnfit, match=f"{key.split('_')[0]}_"):
        outside(log_engine="tls://127.0.0.1:4222", **given).target()
