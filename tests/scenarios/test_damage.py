"""A file that was damaged in the middle costs the records that are damaged, and no other."""

import logging

import pytest

from poe import Node
from poe.broker.log_limit import LogLimit
from poe.errors import CorruptRecord
from poe.testing import wait_until
from tests.scenarios.clients import CLIENTS, RawClient

TOPIC = b"damaged"
MESSAGES = [b"message %d" % number for number in range(10)]
DAMAGED = {4, 5}
RECORD_BYTES = 11 + len(MESSAGES[0])


@pytest.fixture
def damaged(node, tmp_path):
    """Overwrite two of ten records, header and all, and return the node."""
    node.put_many(TOPIC, MESSAGES)
    (path,) = (tmp_path / "data" / "topics" / TOPIC.decode()).glob("*_data")
    with path.open("r+b") as file:
        file.seek(min(DAMAGED) * RECORD_BYTES)
        file.write(b"\xee" * RECORD_BYTES * len(DAMAGED))
    return node


def read_around(read, limit):
    """Read all messages, going on behind each damaged record as its error says."""
    found: list[bytes] = []
    errors: list[CorruptRecord] = []
    pointer, asked = 0, limit
    while len(found) + len(errors) < len(MESSAGES):
        try:
            records = read(TOPIC, pointer, asked)
        except CorruptRecord as error:
            if error.pointer is None:  # of a client that does not ask for a single one by itself
                asked = 1
                continue
            errors.append(error)
            pointer = error.pointer
        else:
            found += [message for _, message in records]
            pointer = records[-1][0]
        asked = limit
    return found, errors


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_all_but_the_damaged_records_can_be_read(damaged, client, limit, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("poe.broker"), "filters", [])
    with caplog.at_level(logging.ERROR):
        found, errors = read_around(client.read, limit)
    assert found == [text for number, text in enumerate(MESSAGES) if number not in DAMAGED]
    assert len(errors) == len(DAMAGED)
    for error in errors:
        assert "topics/damaged/" in str(error)
        assert "poe check" in str(error)
        assert f"from pointer {error.pointer} on" in str(error)
    assert caplog.text.count("topic b'damaged' is damaged") >= len(DAMAGED)
    pointer = client.write(TOPIC, [b"behind the damage"])
    assert client.read(TOPIC, pointer - 1, 1) == [(pointer, b"behind the damage")]
    assert damaged.next(TOPIC, pointer - 1) == (pointer, b"behind the damage")


def test_a_reader_of_single_messages_in_process_goes_around_as_well(damaged):
    def read(topic, pointer, limit):
        assert limit == 1
        return [damaged.next(topic, pointer)]

    found, errors = read_around(read, 1)
    assert found == [text for number, text in enumerate(MESSAGES) if number not in DAMAGED]
    assert len(errors) == len(DAMAGED)


def test_a_slice_that_begins_with_damage_is_an_error_of_the_reply(damaged):
    with RawClient(damaged.address) as raw:
        pointer = raw.read(TOPIC, 0, min(DAMAGED))[-1][0]
        with pytest.raises(CorruptRecord, match="data reply"):
            raw.read(TOPIC, pointer, 100)
        with pytest.raises(CorruptRecord, match="topics/damaged/"):
            raw.read(TOPIC, pointer, 1)


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_the_clients_ask_until_the_server_names_the_file(damaged, kind):
    client = CLIENTS[kind](damaged.address)
    pointer = client.read(TOPIC, 0, min(DAMAGED))[-1][0]
    with pytest.raises(CorruptRecord, match="topics/damaged/") as caught:
        client.read(TOPIC, pointer, 100)
    assert caught.value.pointer == pointer + 1
    client.close()


def test_an_index_with_a_page_of_zeros_is_made_anew(node, tmp_path):
    """As a power cut may leave it; the data is whole."""
    node.put_many(TOPIC, [b"message %d" % number for number in range(5000)])
    first, _ = node.next(TOPIC, 0)
    node.stop()
    (path,) = (tmp_path / "data" / "topics" / TOPIC.decode()).glob("*_index")
    whole = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(4 * 4096)
        file.write(bytes(4096))
    node.start()
    with RawClient(node.address) as raw:
        for number in (1000, 1400, 1500, 1800):
            records = raw.read(TOPIC, first + number, 1)
            assert records == [(first + number + 1, b"message %d" % (number + 1))]
    assert path.read_bytes() == whole


def test_a_changed_byte_is_found_after_a_restart_and_costs_its_batch_alone(node, tmp_path):
    """A byte of a message, which no header tells of."""
    batches = [[b"%d" % number * 70_000] for number in range(5)]
    pointers = [node.put_many(TOPIC, batch) for batch in batches]
    node.stop()
    (path,) = (tmp_path / "data" / "topics" / TOPIC.decode()).glob("*_data")
    with path.open("r+b") as file:
        file.seek(2 * 70_011 + 1000)
        file.write(b"x")
    node.start()
    with RawClient(node.address) as raw:
        assert [pointer for pointer, _ in raw.read(TOPIC, 0, 100)] == pointers[:2]
        with pytest.raises(CorruptRecord, match="_data") as caught:
            raw.read(TOPIC, pointers[1], 100)
        assert caught.value.pointer == pointers[2]
        assert [pointer for pointer, _ in raw.read(TOPIC, pointers[2], 9)] == pointers[3:]


def change_bytes(base, offsets):
    """Change bytes of the oldest data file of a stopped node."""
    path = min(base.glob(f"topics/{TOPIC.decode()}/*_data"))
    with path.open("r+b") as file:
        for offset in offsets:
            file.seek(offset)
            file.write(b"x")


def test_the_error_tells_from_which_to_which_pointer_messages_are_damaged(node, tmp_path):
    """Each batch is an entry of the sums; those of a damaged one cannot be told apart."""
    lasts = [node.put_many(TOPIC, [b"%d" % number * 35_000] * 2) for number in range(4)]
    node.stop()
    change_bytes(tmp_path / "data", [1000, 2 * 70_022 + 1000])
    node.start()
    with RawClient(node.address) as raw:
        for pointer, low, high in ((0, None, lasts[0]), (lasts[1], lasts[1] + 1, lasts[2])):
            with pytest.raises(CorruptRecord) as caught:
                raw.read(TOPIC, pointer, 100)
            error = caught.value
            assert error.pointer == high
            assert low in (None, error.pointer_low)
            assert error.pointer_low <= high - 1
            assert f"pointers {error.pointer_low} to {high} are damaged" in str(error)
            assert raw.read(TOPIC, high, 1)[0][0] == lasts[lasts.index(high) + 1] - 1


@pytest.fixture
def skipping(tmp_path):
    return Node(dir=tmp_path / "skipping", port=0, on_corrupt="skip")


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("limit", [1, 100])
def test_damage_can_be_skipped_and_is_counted(skipping, tmp_path, kind, limit):
    with skipping as node:
        pointers = [node.put_many(TOPIC, [b"%d" % number * 70_000]) for number in range(5)]
    change_bytes(tmp_path / "skipping", [1000, 2 * 70_011 + 1000, 3 * 70_011 + 1000])
    with skipping as node:
        client = CLIENTS[kind](node.address)
        found, pointer = [], 0
        while records := client.read(TOPIC, pointer, limit):
            found += [pointer for pointer, _ in records]
            pointer = found[-1]
        assert found == [pointers[1], pointers[4]]
        assert client.control("health")["gaps_count"] == 3
        assert node.next(TOPIC, pointers[1]) == (pointers[4], b"4" * 70_000)
        assert client.control("health")["gaps_count"] == 5
        client.close()


def test_what_is_skipped_is_logged_a_few_times_in_a_second(skipping, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("poe.broker"), "filters", [LogLimit()])
    with skipping as node:
        node.put_many(TOPIC, [b"1" * 70_000])
        node.put_many(TOPIC, [b"2" * 70_000])
    change_bytes(tmp_path / "skipping", [1000])
    with skipping as node, RawClient(node.address) as raw, caplog.at_level(logging.ERROR):
        for _ in range(100):
            assert len(raw.read(TOPIC, 0, 9)) == 1
        assert raw.control("health")["gaps_count"] == 100
    lines = caplog.text.count("topic b'damaged' is damaged")
    assert 1 <= lines < 100


def test_damage_is_skipped_into_the_next_segment(tmp_path):
    options = {"dir": tmp_path / "data", "port": 0, "on_corrupt": "skip", "size_limit": 70_000}
    with Node(options, check_interval=0.01) as node:
        node.put(TOPIC, b"1" * 70_000)
        wait_until(lambda: len(node.info()[0][1]) > 1, 10)
        second = node.put(TOPIC, b"2")
    change_bytes(tmp_path / "data", [1000])
    with Node(options) as node, RawClient(node.address) as raw:
        assert raw.read(TOPIC, 0, 9) == [(second, b"2")]
        assert node.next(TOPIC, 0) == (second, b"2")


def test_damage_at_the_end_is_skipped_and_what_comes_then_is_found(skipping, tmp_path):
    with skipping as node:
        last = node.put_many(TOPIC, [b"1" * 70_000, b"2" * 70_000])
    change_bytes(tmp_path / "skipping", [1000])
    with skipping as node, RawClient(node.address) as raw:
        assert raw.read(TOPIC, 0, 9) == []  # all that there is
        assert node.next(TOPIC, 0) is None
        pointer = node.put(TOPIC, b"behind")
        assert raw.read(TOPIC, 0, 9) == [(pointer, b"behind")]
        assert pointer > last


def test_by_default_a_read_in_process_raises_as_one_over_the_socket_does(node, tmp_path):
    last = node.put_many(TOPIC, [b"1" * 70_000, b"2" * 70_000])
    node.stop()
    change_bytes(tmp_path / "data", [1000])
    node.start()
    with pytest.raises(CorruptRecord) as caught:
        node.next(TOPIC, 0)
    assert caught.value.pointer == last
    assert node.control("health")["gaps_count"] == 0
