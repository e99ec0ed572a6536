"""Nodes that show each other certificates."""

from pathlib import Path

import pytest

from poe.cluster.fabric.interface import PeerUp
from poe.errors import FabricFailed
from tests.cli.processes import poe_here
from tests.tls import Certificates

pytest.importorskip("zenoh")
pytestmark = pytest.mark.slow


@pytest.fixture
def certificates(tmp_path):
    return Certificates.make(tmp_path)


def files_of(certificates: Certificates, name: str = "server") -> dict[str, Path]:
    return {
        "cluster_certificate": certificates.folder / f"{name}.pem",
        "cluster_key": certificates.folder / f"{name}.key",
        "cluster_ca": certificates.folder / "ca.pem",
    }


def test_nodes_with_certificates_of_one_authority_find_each_other(cluster, certificates):
    first = cluster.start(**files_of(certificates))
    second = cluster.start(**files_of(certificates))
    first.wait_for(lambda: first.is_up(second.me.ref))
    second.wait_for(lambda: second.is_up(first.me.ref))
    assert second.ask(first.me.ref, b"x" * 100_000) == b"X" * 100_000


def test_nodes_find_each_other_with_certificates_that_the_command_has_made(cluster, tmp_path):
    assert poe_here("certificates", tmp_path, "--node", "127.0.0.1").returncode == 0
    files = {
        "cluster_certificate": tmp_path / "127.0.0.1.pem",
        "cluster_key": tmp_path / "127.0.0.1.key",
        "cluster_ca": tmp_path / "ca.pem",
    }
    first, second = (cluster.start(**files) for _ in range(2))
    first.wait_for(lambda: first.is_up(second.me.ref))
    second.wait_for(lambda: second.is_up(first.me.ref))


@pytest.mark.parametrize("kind", ["of another authority", "without any"])
def test_a_node_with_a_certificate_that_is_none_of_the_cluster_stays_outside(
    cluster, certificates, tmp_path, kind
):
    """Nothing tells that somebody was refused; the third node, which is let in, says when."""
    first = cluster.start(**files_of(certificates))
    (tmp_path / "other").mkdir()
    other = Certificates.make(tmp_path / "other")
    stranger = (
        cluster.start(**files_of(other)) if kind == "of another authority" else cluster.start()
    )
    third = cluster.start(**files_of(certificates))
    first.wait_for(lambda: first.is_up(third.me.ref))
    assert [event.peer for event in first.events if isinstance(event, PeerUp)] == [third.me]
    assert stranger.events == []
    assert stranger.ask(first.me.ref, b"hello") is None


def test_a_certificate_that_cannot_be_read_is_told(cluster, certificates):
    (certificates.folder / "server.pem").write_text("no certificate")
    with pytest.raises(FabricFailed, match=r"127\.0\.0\.1:\d+: ."):
        cluster.start(**files_of(certificates))
