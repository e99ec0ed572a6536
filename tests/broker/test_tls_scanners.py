"""What scanners of TLS find at a running node: the versions and suites that were meant, no others.

sslyze gets an environment of its own, for it needs another `cryptography` than others do.
"""

import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SSLYZE = "sslyze==6.3.1"
SUITES_1_3 = {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
SUITES_1_2 = {
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
}
OLD = ("ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1")
FLAWS = {
    "heartbleed": "is_vulnerable_to_heartbleed",
    "openssl_ccs_injection": "is_vulnerable_to_ccs_injection",
    "session_renegotiation": "is_vulnerable_to_client_renegotiation_dos",
    "tls_compression": "supports_compression",
}


@pytest.fixture
def node(serve, certificates):
    """Make a node; a scanner makes many connections at a time."""
    return functools.partial(
        serve, port=None, unauthenticated_per_address_max=256, **certificates.server_options()
    )


@pytest.fixture(scope="session")
def sslyze(tmp_path_factory) -> Path:
    """The interpreter of an environment that has sslyze."""
    folder = tmp_path_factory.mktemp("sslyze")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python: Path = folder / "bin" / "python"
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        SSLYZE,
    ]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    if run.returncode:
        pytest.skip(f"{SSLYZE} cannot be installed: {run.stderr.strip()[-200:]}")
    return python


def scanned(sslyze, address, path):
    """Tell what sslyze finds."""
    what = ["--sslv2", "--sslv3", "--tlsv1", "--tlsv1_1", "--tlsv1_2", "--tlsv1_3"]
    what += ["--heartbleed", "--openssl_ccs", "--reneg", "--resum", "--compression"]
    target = f"{address[0]}:{address[1]}"
    command = [sslyze, "-m", "sslyze", f"--json_out={path}", *what, target]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert path.exists(), run.stderr
    (server,) = json.loads(path.read_text())["server_scan_results"]
    assert server["connectivity_status"] == "COMPLETED"
    return {name: each["result"] for name, each in server["scan_result"].items() if each}


def suites(found, version):
    accepted = found[f"{version}_cipher_suites"]["accepted_cipher_suites"]
    return {each["cipher_suite"]["name"] for each in accepted}


@pytest.mark.parametrize(("minimum", "suites_1_2"), [("1.3", set()), ("1.2", SUITES_1_2)])
def test_sslyze_finds_the_versions_and_suites_that_were_meant(
    sslyze, node, tmp_path, minimum, suites_1_2
):
    running = node(tls_min=minimum)
    found = scanned(sslyze, running.tls_address, tmp_path / "found.json")
    assert suites(found, "tls_1_3") == SUITES_1_3
    assert suites(found, "tls_1_2") == suites_1_2
    assert [version for version in OLD if suites(found, version)] == []
    # Of what a version has not got, sslyze tells nothing.
    flaws = [key for name, key in FLAWS.items() if (found.get(name) or {}).get(key)]
    assert flaws == []
    assert running.control("health")["status"] == "ok"


@pytest.mark.skipif(shutil.which("testssl") is None, reason="needs testssl.sh")
def test_testssl_finds_the_versions_that_were_meant(node, tmp_path):
    running = node()
    path = tmp_path / "found.json"
    host, port = running.tls_address
    command = ["testssl", "--quiet", "--color", "0", "--warnings", "batch"]
    # Versions, forward secrecy, and flaws.
    command += ["--jsonfile", str(path), "-p", "-f", "-U", f"{host}:{port}"]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    assert path.exists(), run.stdout + run.stderr
    found = {each["id"]: each for each in json.loads(path.read_text())}
    for version in ("SSLv2", "SSLv3", "TLS1", "TLS1_1", "TLS1_2"):
        assert "not offered" in found[version]["finding"], found[version]
    assert found["TLS1_3"]["finding"].startswith("offered")
    bad = {"LOW", "MEDIUM", "HIGH", "CRITICAL"}
    assert [each for each in found.values() if each["severity"] in bad] == []
    assert running.control("health")["status"] == "ok"
