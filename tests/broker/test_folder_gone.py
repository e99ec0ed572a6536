"""While a node's folder is gone it takes no puts and says so; topics whose files are gone go on."""

import shutil

import pytest

from poe.errors import StoreGone
from poe.storage import Segment
from tests.broker.nodes import SimulatedNode, read_by_next

pytestmark = pytest.mark.usefixtures("quiet")


@pytest.fixture(params=["flushed", "memory", "fsync"])
def sim(request, tmp_path):
    sim = SimulatedNode(tmp_path / "data", ack=request.param)
    sim.node.put(b"t", b"before")
    sim.advance(1)
    yield sim
    sim.stop()


@pytest.mark.parametrize("is_removed", [False, True])
def test_puts_are_refused_within_a_check_interval_and_resume(sim, is_removed):
    elsewhere = sim.folder.with_name("elsewhere")
    sim.folder.rename(elsewhere)
    if is_removed:
        shutil.rmtree(elsewhere)
    sim.advance(0.5)
    for topic in (b"t", b"new"):
        with pytest.raises(StoreGone):
            sim.node.put(topic, b"lost")
    assert not sim.folder.exists()
    if is_removed:
        return
    elsewhere.rename(sim.folder)
    sim.advance(0.5)
    sim.node.put(b"t", b"after")
    assert [message for _, message in read_by_next(sim.node, b"t")] == [b"before", b"after"]


@pytest.mark.parametrize("is_removed", [False, True])
def test_without_the_folder_of_all_topics_puts_are_refused_and_health_says_so(sim, is_removed):
    """Of a new topic, too: each put would have failed as if the disk had, one by one."""
    topics, elsewhere = sim.folder / "topics", sim.folder / "elsewhere"
    topics.rename(elsewhere)
    sim.advance(0.5)
    for topic in (b"t", b"new"):
        with pytest.raises(StoreGone, match=f"{topics} is not the one"):
            sim.node.put(topic, b"lost")
    assert str(topics) in sim.routes.health()["refusal"]
    topics.mkdir() if is_removed else elsewhere.rename(topics)
    sim.advance(0.5)
    for message in (b"back", b"after"):  # that of the old topic is looked for once it is put onto
        sim.node.put(b"t", message)
        sim.node.put(b"new", message)
        sim.advance(1)
    sim.stop()
    assert [each.read_bytes()[-5:] for each in topics.glob("*/*_data")] == [b"after"] * 2
    sim.start()


@pytest.mark.parametrize("what", ["folder", "data", "replaced", "moved"])
def test_a_topic_that_lost_its_files_goes_on_in_a_new_segment(sim, what):
    folder = sim.folder / "topics/t"
    (data,) = folder.glob("*_data")
    if what == "folder":
        shutil.rmtree(folder)
    elif what == "moved":
        folder.rename(sim.folder / "t")
    else:
        content = data.read_bytes()
        data.unlink()
        if what == "replaced":
            data.write_bytes(content)
    sim.node.put(b"t", b"under way")
    sim.advance(0.5)
    sim.node.put(b"t", b"kept")
    sim.advance(1)
    sim.node.put(b"t", b"kept, too")
    kept = [path.read_bytes() for path in folder.glob("*_data") if path != data]
    assert any(b"kept" in each for each in kept)
    assert b"under way" not in b"".join(kept)
    assert folder.is_dir()
    sim.stop()
    sim.start()
    messages = [message for _, message in read_by_next(sim.node, b"t")]
    assert messages[-2:] == [b"kept", b"kept, too"]


@pytest.mark.parametrize("what", ["folder", "files", "data", "index", "empty", "longer"])
def test_a_topic_that_lost_its_files_while_it_slept_goes_on_with_the_next_put(sim, what):
    folder = sim.folder / "topics/t"
    sim.advance(3)
    if what == "folder":
        shutil.rmtree(folder)
    elif what in {"empty", "longer"}:
        (data,) = folder.glob("*_data")
        content = b"" if what == "empty" else data.read_bytes() * 2
        data.unlink()
        data.write_bytes(content)
    else:
        for path in folder.glob("*" if what == "files" else f"*_{what}"):
            path.unlink()
    assert sim.node.put(b"t", b"kept") > 0
    sim.advance(1)
    assert sim.node.put(b"t", b"kept, too") > 0
    if what in {"empty", "longer"}:
        assert b"kept" not in data.read_bytes()
    sim.stop()
    sim.start()
    messages = [message for _, message in read_by_next(sim.node, b"t")]
    assert messages[-2:] == [b"kept", b"kept, too"]


def test_files_lost_while_the_folder_was_gone_are_noticed_when_it_is_back(sim):
    elsewhere = sim.folder.with_name("elsewhere")
    sim.node.put(b"t", b"under way")
    sim.folder.rename(elsewhere)
    sim.advance(0.5)
    shutil.rmtree(elsewhere / "topics/t")
    elsewhere.rename(sim.folder)
    sim.advance(0.5)
    sim.node.put(b"t", b"kept")
    sim.advance(1)
    (data,) = (sim.folder / "topics/t").glob("*_data")
    assert b"kept" in data.read_bytes()


def test_topics_that_nobody_puts_to_are_not_looked_at(sim, monkeypatch):
    """Nothing may cost per topic that is not touched."""
    looked: list[str] = []

    def look(segment):
        looked.append(segment.path)
        return True

    monkeypatch.setattr(Segment, "is_in_place", look)
    sim.advance(5)
    looked.clear()
    sim.node.put(b"u", b"x")
    sim.advance(5)
    assert len(looked) == 1
    assert looked[0].startswith("topics/u/")
