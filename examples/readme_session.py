"""The session of the original's README, word for word: topics, pointers, rotation, hibernation.

Pointers are timestamps and differ from run to run, so the output shows how they relate.
"""

import tempfile
import time

import poe


def wait_until_status_is(topic: bytes, roles: str) -> None:
    """Return when the appendix servers of a topic have these roles; give up after 30 s."""
    deadline_s = time.monotonic() + 30
    while roles != "".join(role for _, role in dict(poe.status())[topic]):
        assert time.monotonic() < deadline_s, f"{topic!r} is not {roles!r} after 30 s"
        time.sleep(0.01)


def use_the_python_interface() -> None:
    """Put, iterate, and push one topic over `count_limit`."""
    p1 = poe.put(b"the_topic", b"hello")
    p2 = poe.put(b"the_topic", b"world!")
    print("P1 < P2:", p1 < p2)
    assert poe.next(b"the_topic", 0) == (p1, b"hello")
    assert poe.next(b"the_topic", p1) == (p2, b"world!")
    print("next after P2:", poe.next(b"the_topic", p2))
    [(topic, [(_, role)])] = poe.status()
    print(f"status: {topic.decode()} has one appendix server, role {role}")

    pointers = [poe.put(b"another_topic", b"test") for _ in range(100_001)]
    print("100001 puts, pointers rise:", sorted(set(pointers)) == pointers)
    wait_until_status_is(b"another_topic", "hw")  # the full one sleeps, a second one writes
    poe.print_status()


def use_the_socket_interface(host: str, port: int) -> None:
    """Write two batches, read them back from the last pointer seen."""
    socket = poe.protocol.socket(host, port)
    p3 = poe.protocol.write(b"my_shiny_topic", [b"msg1", b"msg2", b"msg3"], socket)
    p5 = poe.protocol.write(b"my_shiny_topic", [b"msg4", b"msg5"], socket)
    first = poe.protocol.read(b"my_shiny_topic", 0, 2, socket)
    rest = poe.protocol.read(b"my_shiny_topic", first[-1][0], 10, socket)
    assert (rest[0][0], rest[-1][0]) == (p3, p5)
    print("limit 2: ", [message for _, message in first])
    print("limit 10:", [message for _, message in rest])
    print("after that:", poe.protocol.read(b"my_shiny_topic", p5, 10, socket))
    socket.close()


with tempfile.TemporaryDirectory() as folder:
    node = poe.start(dir=folder, port=0)
    assert node.address is not None
    use_the_python_interface()
    use_the_socket_interface(*node.address)
    poe.stop()
    print("stopped")
