"""Producers, consumers and queues at a node with TLS and users: who gets in, and who no more."""

import asyncio
import gc
import itertools
import json
import logging
import pickle
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from poe import Node
from poe.broker.access import failure_delays
from poe.client import (
    AsyncConsumer,
    AsyncProducer,
    AsyncQueue,
    Consumer,
    GroupWorker,
    Producer,
    Queue,
    Received,
)
from poe.errors import (
    AuthenticationFailed,
    AuthenticationRequired,
    NotAuthorized,
    OptionError,
    PoeError,
    SecurityError,
    TlsFailed,
)
from poe.security import Certificate, Scram, Tls, Token, TokenFile
from tests.broker.users_file import UsersFile
from tests.python_process import ROOT
from tests.tls import Certificates
from tests.waiting import wait_until

TOPIC = b"orders"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Have failures answered at once."""
    monkeypatch.setattr(failure_delays, "FIRST_S", 0.001)


@pytest.fixture
def users(tmp_path) -> UsersFile:
    """Alice may do everything with `orders`, and bob nothing."""
    users = UsersFile(tmp_path / "users.toml")
    users.password("alice", "canary-password")
    users.password("bob", "other")
    users.grant("alice ci", "read write create delete", topics="orders", groups="readers workers")
    return users


class Place:
    """A node with TLS and users, and how to get in."""

    def __init__(self, serve: Callable[..., Node], certificates: Certificates, users: UsersFile):
        users.write()
        self.users = users
        self._start = lambda **more: serve(
            users=users.path, reload_interval=0, **certificates.server_options(), **more
        )
        self.node = self._start()
        self.tls = Tls(certificates.file("ca.pem"))
        self.ways = {"tls": self.tls, "credentials": Scram("alice", "canary-password")}

    @property
    def url(self) -> str:
        address = self.node.tls_address
        assert address is not None
        return f"poes://{address[0]}:{address[1]}"

    def change(self) -> None:
        """Have the node go by what stands in the file now."""
        self.users.write()
        self.node.reload()

    def values(self) -> list[bytes | None]:
        """What the topic has, by another way."""
        with self.node.consumer(TOPIC) as consumer:
            return [each.value for each in consumer]


@pytest.fixture
def place(serve, certificates, users):
    return Place(serve, certificates, users)


@pytest.fixture
def token_file(tmp_path):
    path = tmp_path / "token"

    def write(text):
        new = path.with_suffix(".new")
        new.write_text(text + "\n")
        new.chmod(0o600)
        new.replace(path)
        return path

    return write


# ---- all of them, over TLS ----------------------------------------------------------------------


def test_all_kinds_of_clients_get_in(place):
    with Producer(place.url, **place.ways) as producer:
        for number in range(100):
            producer.produce_sync(TOPIC, b"%d" % number)
    with Consumer(place.url, TOPIC, **place.ways) as consumer:
        assert [each.value for each in consumer] == [b"%d" % number for number in range(100)]
    with Consumer(place.url, TOPIC, group="readers", **place.ways) as consumer:
        assert len(consumer.receive()) == 100
    with Queue(place.url, TOPIC, group="workers", **place.ways) as queue, queue.get() as job:
        assert job.value == b"0"


async def test_all_kinds_of_clients_for_asyncio_get_in(place):
    async with AsyncProducer(place.url, **place.ways) as producer:
        await asyncio.gather(*(producer.produce_sync(TOPIC, b"m") for _ in range(100)))
    async with AsyncConsumer(place.url, TOPIC, **place.ways) as consumer:
        assert len([each async for each in consumer]) == 100
    queue = AsyncQueue(place.url, TOPIC, group="workers", **place.ways)
    async with queue, await queue.get() as job:
        assert job.value == b"m"


def test_large_batches_of_many_threads_arrive_whole(place):
    """Sends of some threads and receives of others take turns at one TLS connection."""
    sent = [[b"%d-%d:" % (who, i) + b"x" * 40_000 for i in range(60)] for who in range(4)]
    with Producer(place.url, batch_bytes=2 << 20, **place.ways) as producer:

        def put(messages):
            for i, message in enumerate(messages):
                if i % 3:
                    producer.produce_async_batched(TOPIC, message)
                else:
                    producer.produce_sync(TOPIC, message)

        threads = [threading.Thread(target=put, args=[each]) for each in sent]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert producer.flush(30)
    found = place.values()
    assert sorted(found) == sorted(itertools.chain(*sent))
    for who, own in enumerate(sent):
        assert [each for each in found if each.startswith(b"%d-" % who)] == own


# ---- who does not get in ------------------------------------------------------------------------


def wrong_ways(place, tmp_path):
    strangers = Certificates.make(tmp_path / "strangers")
    return {
        "password": ({**place.ways, "credentials": Scram("alice", "wrong")}, AuthenticationFailed),
        "user": ({**place.ways, "credentials": Scram("nobody", "x")}, AuthenticationFailed),
        "certificate": ({**place.ways, "credentials": Certificate()}, AuthenticationFailed),
        "none": ({"tls": place.tls}, AuthenticationRequired),
        "authority": ({**place.ways, "tls": Tls(strangers.file("ca.pem"))}, TlsFailed),
        "right": ({**place.ways, "credentials": Scram("bob", "other")}, NotAuthorized),
    }


@pytest.fixture(params=["password", "user", "certificate", "none", "authority", "right"])
def wrong(request, place, tmp_path):
    (tmp_path / "strangers").mkdir()
    return wrong_ways(place, tmp_path)[request.param]


def logins(caplog):
    """How many logins the node has seen."""
    return sum("auth" in json.loads(each.getMessage()).get("event", "")
               for each in caplog.records if each.name == "poe.audit")  # fmt: skip


@pytest.mark.parametrize("spool", [False, True])
def test_a_producer_that_is_not_let_in_says_so_at_once(place, wrong, tmp_path, caplog, spool):
    ways, error = wrong
    caplog.set_level(logging.INFO)
    options = {"spool_dir": tmp_path / "spool"} if spool else {}
    begun_s = time.monotonic()
    with Producer(place.url, close_timeout_s=0, **options, **ways) as producer:
        with pytest.raises(error) as caught:
            producer.prepare(TOPIC)
        for _ in range(20):
            with pytest.raises(error):
                producer.produce_sync(TOPIC, b"m")
        with pytest.raises(error):
            producer.produce_async(TOPIC, b"m")
    assert time.monotonic() - begun_s < 4
    assert "\n" not in str(caught.value)
    assert logins(caplog) <= 6


async def test_a_producer_for_asyncio_is_told_as_well(place, wrong):
    ways, error = wrong
    async with AsyncProducer(place.url, close_timeout_s=0, **ways) as producer:
        with pytest.raises(error):
            await producer.produce_sync(TOPIC, b"m")


def test_consumers_raise_what_keeps_them_out(place, wrong, caplog):
    ways, error = wrong
    caplog.set_level(logging.INFO)
    consumer = Consumer(place.url, TOPIC, **ways)
    for _ in range(20):
        with pytest.raises(error):
            consumer.receive()
    consumer.close()
    member = Consumer(place.url, TOPIC, group="readers", **ways)
    for _ in range(20):
        with pytest.raises(error):
            member.receive()
    member.close()
    queue = Queue(place.url, TOPIC, group="workers", **ways)
    for call in (lambda: queue.put(b"m"), queue.get):
        with pytest.raises(error):
            call()
    queue.close()
    # Who is let in, and may not, has asked for nothing that is costly.
    assert logins(caplog) <= (100 if error is NotAuthorized else 20)


def test_a_pool_ends_with_the_sentence(place, wrong):
    ways, error = wrong
    pool = GroupWorker(place.url, TOPIC, print, group="workers", **ways)
    with pool as worker, pytest.raises(error):
        worker.join(10)


# ---- rights and credentials that change ---------------------------------------------------------


def test_a_right_that_is_taken_away_and_given_back_delays_messages_only(place):
    grants = place.users.grants.copy()
    with Producer(place.url, linger_s=0.001, **place.ways) as producer:
        assert producer.produce_sync(TOPIC, b"0")
        place.users.grants.clear()
        place.change()
        deliveries = [producer.produce_async(TOPIC, b"%d" % number) for number in range(1, 30)]
        wait_until(lambda: producer.statistics()["messages_retried"] > 0)
        assert not any(each.done() for each in deliveries)
        place.users.grants[:] = grants
        place.change()
        for each in deliveries:
            each.result(60)
    assert place.values() == [b"%d" % number for number in range(30)]


def test_a_user_who_is_removed_and_comes_back_loses_nothing(place, tmp_path):
    lines = place.users.users["alice"]
    options = {"spool_dir": tmp_path / "spool", "linger_s": 0.001}
    with Producer(place.url, **options, **place.ways) as producer:
        assert producer.produce_sync(TOPIC, b"0")
        place.users.remove("alice")
        grants, place.users.grants[:] = place.users.grants.copy(), []
        place.change()
        deliveries = [producer.produce_async(TOPIC, b"%d" % number) for number in range(1, 30)]
        wait_until(lambda: producer.info(TOPIC).spooled_count > 0)
        assert isinstance(producer.info(TOPIC).last_error, PoeError)
        place.users.users["alice"], place.users.grants[:] = lines, grants
        place.change()
        for each in deliveries:
            each.result(60)
    assert place.values() == [b"%d" % number for number in range(30)]


def test_what_is_in_the_spool_stays_there_while_nobody_is_let_in(place, tmp_path):
    options = {"spool_dir": tmp_path / "spool", "linger_s": 0.001, "close_timeout_s": 0}
    nowhere = "poes://127.0.0.1:1"
    with Producer(nowhere, **options, **place.ways) as producer:
        producer.produce_async(TOPIC, b"0")
        wait_until(lambda: producer.info(TOPIC).spooled_count == 1)
    wrong = {**place.ways, "credentials": Scram("bob", "other")}
    with Producer(place.url, **options, **wrong) as producer:
        with pytest.raises(NotAuthorized):
            producer.prepare(TOPIC)
        with pytest.raises(NotAuthorized):
            producer.produce_sync(TOPIC, b"1")
        assert producer.info(TOPIC).spooled_count == 1
    with Producer(place.url, **{**options, "close_timeout_s": 10}, **place.ways) as producer:
        producer.flush(10)
    assert place.values() == [b"0"]


class Load:
    """A producer that puts numbers, and a consumer that reads them, each in a thread."""

    def __init__(self, url: str, ways: dict[str, Any]):
        self._url, self._ways = url, ways
        self._is_over = threading.Event()
        self.produced = 0
        self.received: list[bytes | None] = []
        self.failed = 0

    def __enter__(self):
        self._threads = [threading.Thread(target=each) for each in (self._put, self._read)]
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        for each in self._threads:
            each.join(60)

    def go_on(self):
        """Return when it has got on."""
        goal = len(self.received) + 100
        wait_until(lambda: len(self.received) > goal, 30)

    def _put(self):
        with Producer(self._url, linger_s=0.001, **self._ways) as producer:
            while not self._is_over.is_set():
                producer.produce_async(TOPIC, b"%d" % self.produced)
                self.produced += 1
                time.sleep(0.0005)
            assert producer.flush(30)
            self.failed = producer.statistics()["messages_failed"]

    def _read(self):
        with Consumer(self._url, TOPIC, follow=True, **self._ways) as consumer:
            while not self._is_over.is_set() or len(self.received) < self.produced:
                self.received += [each.value for each in consumer.receive(0.2)]


@pytest.mark.slow
def test_a_token_is_rotated_under_load_without_a_gap(place, token_file):
    """Two tokens are good for a while; then the old one, with its connections, is gone."""
    first = place.users.token("ci", "first")
    place.change()
    ways = {"tls": place.tls, "credentials": TokenFile(token_file(first))}
    old = "first"
    with Load(place.url, ways) as load:
        for number in range(6):
            load.go_on()
            new = place.users.token("ci", f"token-{number}")
            place.change()
            token_file(new)
            rows = place.users.users["ci"]
            rows[:] = [each for each in rows if f'id = "{old}"' not in each]
            place.change()
            old = f"token-{number}"
        load.go_on()
    assert load.failed == 0
    assert load.received == place.values() == [b"%d" % number for number in range(load.produced)]


@pytest.mark.slow
@pytest.mark.alone  # a token is good for three seconds, and must be renewed in them
def test_tokens_that_expire_are_renewed_on_connections_that_go_on(place, monkeypatch):
    """The function gives a new one each time; nobody reconnects."""
    monkeypatch.setattr("poe.protocol.renewal._PAUSE_MIN_S", 0.05)
    issued, one_by_one = itertools.count(), threading.Lock()

    def issue():
        with one_by_one:
            text = place.users.token("ci", f"t{next(issued)}", time.time() + 3)
            place.change()
            return text

    ways = {"tls": place.tls, "credentials": Token(issue)}
    reasons = []
    callbacks = {"worker_down": lambda *told: reasons.append(told)}
    with (
        Producer(place.url, callbacks=callbacks, **ways) as producer,
        Consumer(place.url, TOPIC, follow=True, **ways) as consumer,
    ):
        end_s, count = time.monotonic() + 7, 0
        while time.monotonic() < end_s:
            producer.produce_sync(TOPIC, b"%d" % count)
            count += 1
            time.sleep(0.01)
        received: list[Received] = []
        while len(received) < count:
            received += consumer.receive(10)
        assert reasons == []
    assert [each.value for each in received] == [b"%d" % number for number in range(count)]
    assert next(issued) > 6


# ---- nothing of a secret ------------------------------------------------------------------------


@pytest.mark.slow
def test_no_secret_stands_anywhere(place, tmp_path, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    token = place.users.token("ci", "canary-token")
    place.change()
    told: list[object] = []
    for credentials in (Scram("alice", "canary-password"), Token(token), Token(lambda: token)):
        ways = {"tls": place.tls, "credentials": credentials}
        spool = tmp_path / f"spool-{len(told)}"
        with Producer(place.url, spool_dir=spool, **ways) as producer:
            producer.produce_sync(TOPIC, b"m")
            told += [repr(producer), producer.statistics(), producer.info(TOPIC), producer._core]  # noqa: SLF001
            told += [vars(producer._core), producer._core.options]  # noqa: SLF001 - a debugger shows it
        with Consumer(place.url, TOPIC, **ways) as consumer:
            told += [consumer.receive(), repr(consumer), vars(consumer), consumer.statistics()]
        with pytest.raises(OptionError) as caught:
            Consumer(place.url, TOPIC, nonsense=1, **ways)
        told.append(caught.value)
        with pytest.raises(SecurityError):
            pickle.dumps(credentials)
    wrong = {"tls": place.tls, "credentials": Scram("alice", "canary-wrong")}
    consumer = Consumer(place.url, TOPIC, **wrong)
    with pytest.raises(AuthenticationFailed) as refused:
        consumer.receive()
    consumer.close()
    told.append(refused.value)
    gc.collect()
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    shown = "\n".join([caplog.text, *capfd.readouterr(), *map(repr, told), *map(str, told)])
    drawn = token.split("_", 2)[2].rpartition("_")[0]  # it may hold a "_" itself
    for secret in ("canary-password", token, drawn, "canary-wrong"):
        assert secret not in shown
        assert not any(secret.encode() in each for each in written)


def test_credentials_of_files_travel(place, token_file):
    path = token_file(place.users.token("ci", "travels"))
    place.change()
    credentials = pickle.loads(pickle.dumps(TokenFile(path)))
    with Producer(place.url, tls=place.tls, credentials=credentials) as producer:
        assert producer.produce_sync(TOPIC, b"m")


@pytest.fixture
def folder(certificates, tmp_path, monkeypatch):
    """A current folder with the files that the documents name."""
    (tmp_path / "tls").mkdir()
    shutil.copy(certificates.file("ca.pem"), tmp_path / "tls")
    password = tmp_path / "alice.password"
    password.write_text("canary-password\n")
    password.chmod(0o600)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("document", ["producer", "consumer", "groups"])
def test_what_the_documents_show_works(place, document, capfd):
    text = (ROOT / "docs" / f"{document}.md").read_text().partition("## TLS and credentials")[2]
    with Producer(place.url, **place.ways) as producer:
        producer.produce_sync(TOPIC, b"before")
    code = text.partition("```python\n")[2].partition("```")[0]
    exec(code.replace("poes://localhost", place.url), {})
    shown = capfd.readouterr().out
    assert {"producer": place.values() == [b"before", b"hello"],
            "consumer": "before" in shown, "groups": "before" in shown}[document]  # fmt: skip
