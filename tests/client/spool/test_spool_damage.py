"""What those who wait are told of batches that the disk has damaged."""

import struct

import pytest

from poe.client.spool.spool_mark import MARK_FILE, SpoolMark
from poe.errors import SpoolDamaged
from poe.storage.formats.hashed import seal
from tests.client.spooled_life import Life, World, numbers
from torture.layers.memory import MemoryFiles


def damage(world, message):
    """Change a byte of a message, where it lies on the disk."""
    for path, inode in world.disk.inodes.items():
        place = inode.content.find(b"\xc4%c" % len(message) + message)
        if path.endswith(".slab") and place >= 0:
            inode.write(b"?", place + 2)


@pytest.mark.parametrize("is_open", [True, False])
def test_what_is_damaged_in_the_spool_is_told_to_its_callers_and_counted(is_open):
    world = World(batch_count=1)
    deliveries = world.add(numbers(0, 4))
    world.time.advance(1.0)
    for number in (1, 2):
        damage(world, b"%d" % number)
    if not is_open:
        world.life.spooler.close()
        world.life = Life(world.files, world.time)
    world.life.connect(world.servers)
    assert world.life.topic.info().spooled_count == 2
    world.life.run(world.time)
    assert world.log == numbers(0, 1) + numbers(3, 4)
    info = world.life.topic.info()
    assert (info.spool_damaged_count, info.spooled_count) == (2, 0)
    for delivery in deliveries[1:3] if is_open else ():
        with pytest.raises(SpoolDamaged) as caught:
            delivery.result(0)
        assert caught.value.fate == "they were not stored"


def test_damage_that_is_found_in_a_downtime_is_told_at_once():
    world = World(batch_count=1, bytes_max=1000)
    deliveries = world.add(numbers(10, 14))
    world.time.advance(1.0)
    damage(world, b"10")
    while not deliveries[0].done():
        assert len(deliveries) < 100
        deliveries += world.add([b"more"])
        world.time.advance(1.0)
    with pytest.raises(SpoolDamaged):
        deliveries[0].result(0)


def test_a_mark_that_says_it_was_written_as_often_as_nobody_can_is_damaged(caplog):
    files = MemoryFiles()
    SpoolMark(files, 0, 1000).move(500)
    slot = seal(struct.pack(">8sI4xQQ", b"poe-spol", 1, 2**64 - 1, 2000))
    files.inodes[MARK_FILE].content[: len(slot)] = slot
    files.inodes[MARK_FILE].content[512:] = bytes(len(slot))
    mark = SpoolMark(files, 0, 1000)
    assert mark.address == 0
    assert "is damaged: what was delivered may be so again" in caplog.text
    mark.move(600)
    assert SpoolMark(files, 0, 1000).address == 600
