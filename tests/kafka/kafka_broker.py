"""Apache Kafka as users run it: one KRaft node on loopback that tests may kill and start again."""

import fcntl
import hashlib
import shutil
import socket
import subprocess
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.waiting import wait_until

POM = Path(__file__).parent / "pom.xml"
BUILD = Path(__file__).parent.parent.parent / "build"

JAVA = (
    *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
# Until its session has run out, a killed broker counts as alive, and may not come back.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
"""


class Unavailable(Exception):
    """Kafka cannot run here; the sentence says what is missing."""


def jars() -> Path:
    """Return the folder with Kafka's jars; the first time Maven downloads them, 45 MB.

    Raises:
        Unavailable: no Java, no Maven, or no network.
    """
    for command, package in (("java", "default-jre-headless"), ("mvn", "maven")):
        if shutil.which(command) is None:
            msg = f"Apache Kafka needs {command}: apt-get install {package}"
            raise Unavailable(msg)
    folder = BUILD / f"kafka-{hashlib.sha256(POM.read_bytes()).hexdigest()[:12]}"
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _download(folder)
    return folder


def _download(folder: Path) -> None:
    # Under its own name only when it is complete.
    part = folder.with_suffix(".part")
    maven = subprocess.run(
        ["mvn", "-B", "-q", "-f", POM, "dependency:copy-dependencies", f"-DoutputDirectory={part}"],
        capture_output=True,
        text=True,
        check=False,
    )
    if maven.returncode:
        told = [line for line in maven.stdout.splitlines() if "ERROR" in line]
        msg = f"Maven cannot get Apache Kafka: {told[0] if told else maven.stderr[-300:]}"
        raise Unavailable(msg)
    part.rename(folder)


class KafkaBroker:
    """One node, broker and controller at once; `start` it, `kill` it, and it keeps its data."""

    def __init__(self, folder: Path) -> None:
        self._classpath = f"{jars()}/*"
        self._log = folder / "log"
        self._properties = folder / "server.properties"
        self._process: subprocess.Popen[bytes] | None = None
        port, controller_port = _free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self.url = f"kafka://{self.address}"
        folder.mkdir(exist_ok=True)
        self._properties.write_text(
            PROPERTIES.format(port=port, controller_port=controller_port, data=folder / "data")
        )
        with self._log.open("wb") as log:
            subprocess.run(
                self._java("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"),
                check=True,
                stdout=log,
                stderr=log,
            )
        self._admin = AdminClient(
            {"bootstrap.servers": self.address, "reconnect.backoff.max.ms": 100, "log_level": 0}
        )

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the node, and return when it serves."""
        self.start_nowait()
        self.wait_ready()

    def start_nowait(self) -> None:
        """Start the node."""
        assert self._process is None
        # The kernel ends it with the tests, however these end.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, *self._java("kafka.Kafka")], stdout=log, stderr=log
            )

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Return when the node answers."""
        wait_until(self._is_ready, timeout_s)

    def kill(self) -> None:
        """End the process at once, as a crash does; it is gone on return."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def create_topic(self, name: str, partitions: int = 1) -> str:
        """Make a topic with so many partitions, and return its name."""
        for future in self._admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result()
        return name

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        try:
            return bool(self._admin.list_topics(timeout=0.5).brokers)
        except KafkaException:
            return False

    def _java(self, main: str, *arguments: str) -> list[str]:
        return [*JAVA, "-cp", self._classpath, main, *arguments, str(self._properties)]


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
