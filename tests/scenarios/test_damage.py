"""A file that was damaged in the middle costs the records that are damaged, and no other."""

import logging

import pytest

from poe.errors import CorruptRecord
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
