"""Topics with any name: in which folders a store keeps them, and finds them again."""

import logging

import pytest

from poe.errors import InvalidTopicName, TopicFailed
from poe.storage import RealFiles, SegmentOptions, Store, check_events, check_segments
from poe.storage.formats.store_meta import StoreMeta
from tests.storage.segments import NOW, names_in, read_all

ESCAPE = SegmentOptions(names="escape")
TOPICS = [b"..", b"a/b", b"a b", b"%41", b"A", "ä".encode(), b"\xff", b"\n", b"x" * 255, b"/" * 85]
UMLAUT = "ä".encode()
ORIGINAL_FOLDER = UMLAUT.decode("latin-1")


def contents(store):
    return {
        topic: [message for segment in segments for _, message in read_all(segment)]
        for topic, segments in store.topics.items()
    }


def fill(base, topics):
    with_names = Store.open(base, ESCAPE)
    for topic in topics:
        with_names.create_segment(topic, NOW).append([topic, b"more"], NOW)
    with_names.close()


def sealed_in(base):
    """Tell the folders whose segments a start will take as they are, by the events."""
    return sorted(topic for topic, _ in StoreMeta(RealFiles.at(base), b"").live)


def as_of_the_original(base, name=ORIGINAL_FOLDER, topic=b"t"):
    """Leave what the original would: data and index in a folder that it has named its way."""
    store = Store.open(base, ESCAPE)
    store.create_segment(topic, NOW).append([b"old"], NOW)
    store.close()
    (base / "topics" / topic.decode()).rename(base / "topics" / name)
    (base / f"topics/{name}/{NOW}_sum").unlink()
    (base / "store.meta").unlink()


def test_any_name_is_found_again(tmp_path):
    base = tmp_path / "base"
    fill(base, TOPICS)
    assert names_in(tmp_path) == ["base"]
    assert len(names_in(base / "topics")) == len(TOPICS)
    store = Store.open(base, ESCAPE)
    assert contents(store) == {topic: [topic, b"more"] for topic in TOPICS}


def test_a_killed_store_recovers_topics_with_any_name(tmp_path):
    store = Store.open(tmp_path, ESCAPE)
    for topic in TOPICS:
        store.create_segment(topic, NOW).append([topic], NOW)
    del store
    for folder in (tmp_path / "topics").iterdir():
        with (folder / f"{NOW}_data").open("ab") as file:
            file.write(b"half a request")
    store = Store.open(tmp_path, ESCAPE)
    assert contents(store) == {topic: [topic] for topic in TOPICS}
    assert len(names_in(tmp_path / "quarantine")) == len(TOPICS)


def test_files_of_long_names_fit_into_quarantine_and_stay_apart(tmp_path):
    topics = [b"x" * 254 + b"1", b"x" * 254 + b"2"]
    fill(tmp_path, topics)
    for folder in (tmp_path / "topics").iterdir():
        (folder / f"{NOW}_data").unlink()
    store = Store.open(tmp_path, ESCAPE)
    assert store.topics == {}
    assert len({n for n in names_in(tmp_path / "quarantine") if "_index_" in n}) == len(topics)


def test_the_last_segment_takes_the_folder_along(tmp_path):
    store = Store.open(tmp_path, ESCAPE)
    for topic in TOPICS:
        store.destroy_segment(topic, store.create_segment(topic, NOW))
    assert names_in(tmp_path / "topics") == []


def test_a_strict_store_tells_of_names_that_it_does_not_serve_and_loses_nothing(tmp_path, caplog):
    fill(tmp_path, [b"plain", b"a b"])
    with caplog.at_level(logging.ERROR):
        store = Store.open(tmp_path)
    assert contents(store) == {b"plain": [b"plain", b"more"]}
    assert list(store.failed) == [b"a b"]
    with pytest.raises(TopicFailed, match="set the server's option names to escape"):
        store.recover_topic(b"a b")
    with pytest.raises(InvalidTopicName):
        store.create_segment(b"a b", NOW)
    assert "set the server's option names to escape" in caplog.text
    assert "is gone" not in caplog.text
    store.close()
    assert sealed_in(tmp_path) == [b"a%20b", b"plain"]
    assert contents(Store.open(tmp_path, ESCAPE))[b"a b"] == [b"a b", b"more"]


def test_a_folder_of_the_original_is_served_under_its_real_name(tmp_path):
    as_of_the_original(tmp_path)
    store = Store.open(tmp_path, ESCAPE)
    assert contents(store) == {UMLAUT: [b"old"]}
    store.create_segment(UMLAUT, NOW + 100).append([b"new"], NOW)
    store.close()
    assert names_in(tmp_path / "topics") == [ORIGINAL_FOLDER]
    store = Store.open(tmp_path, ESCAPE)
    assert contents(store) == {UMLAUT: [b"old", b"new"]}
    store.close()
    assert list(check_events(RealFiles.at(tmp_path))) == []
    segments = list(check_segments(RealFiles.at(tmp_path)))
    assert [segment.path for segment in segments] == [
        f"topics/{ORIGINAL_FOLDER}/{NOW}",
        f"topics/{ORIGINAL_FOLDER}/{NOW + 100}",
    ]
    assert not any(segment.damage for segment in segments)


def test_a_folder_of_the_original_is_named_by_a_strict_store(tmp_path):
    as_of_the_original(tmp_path)
    store = Store.open(tmp_path)
    assert store.topics == {}
    with pytest.raises(TopicFailed, match="set the server's option names to escape"):
        store.recover_topic(UMLAUT)


@pytest.mark.parametrize("options", [SegmentOptions(), ESCAPE])
@pytest.mark.parametrize("folder", ["ä", "lost+found", "a%20b"])
def test_a_folder_that_could_be_of_two_topics_or_holds_no_segment_is_left_alone(
    tmp_path, caplog, folder, options
):
    Store.open(tmp_path).close()
    (tmp_path / "topics" / folder).mkdir(parents=True)
    (tmp_path / "topics" / folder / "notes").touch()
    if folder == "ä":
        (tmp_path / "topics" / folder / f"{NOW}_data").touch()
    store = Store.open(tmp_path, options)
    assert (list(store.topics), store.failed) == ([], {})
    assert f"{folder!r} in topics is no topic and is left alone" in caplog.text
    assert ("it holds segments: stop the server and give it" in caplog.text) == (folder == "ä")
    assert "notes" in names_in(tmp_path / "topics" / folder)


def test_where_there_are_both_folders_that_of_the_original_is_left_alone(tmp_path, caplog):
    as_of_the_original(tmp_path)
    (tmp_path / "topics/t").mkdir()
    fill(tmp_path / "other", [UMLAUT])
    (tmp_path / "other/topics/%C3%A4").rename(tmp_path / "topics/%C3%A4")
    store = Store.open(tmp_path, ESCAPE)
    assert contents(store) == {UMLAUT: [UMLAUT, b"more"]}
    told = f"{ORIGINAL_FOLDER!r} in topics is no topic and is left alone; it holds segments of the "
    assert told + "topic that has the folder '%C3%A4'" in caplog.text
    assert names_in(tmp_path / "topics" / ORIGINAL_FOLDER) == [f"{NOW}_data", f"{NOW}_index"]
