"""The gateway as an ASGI application in somebody else's server, here a plain uvicorn."""

import threading
from contextlib import contextmanager

import httpx
import pytest
import uvicorn

from poe.gateway.http import Gateway, GatewayOptions
from tests.gateway.http.front import stored
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@contextmanager
def serving(gateway):
    """A client of a server that starts and stops the gateway by the lifespan protocol."""
    server = uvicorn.Server(uvicorn.Config(gateway, port=0, lifespan="on", log_config=None))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started, timeout_s=20)
        host, port = server.servers[0].sockets[0].getsockname()
        with httpx.Client(base_url=f"http://{host}:{port}", timeout=20) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


def gateway_of(node, **producer):
    return Gateway(GatewayOptions(broker=f"poe://127.0.0.1:{node.address[1]}", producer=producer))


def test_another_server_can_run_it(node, topic):
    with serving(gateway_of(node)) as client:
        assert client.post(f"/sync/{topic}%2Fx", content=b"x").status_code == 200
        assert client.get(f"/topics/{topic}%2Fx").json()["messages"][0]["value"] == "x"
    assert stored(node, f"{topic}/x") == [b"x"]


def test_what_was_taken_is_delivered_when_that_server_stops(node, topic):
    gateway = gateway_of(node, linger_s=60.0)
    with serving(gateway) as client:
        client.post(f"/sync/{topic}", content=b"first")
        assert client.post(f"/batch/async/{topic}", content=b"second").status_code == 202
    assert gateway.undelivered == []
    assert stored(node, topic) == [b"first", b"second"]


def test_messages_that_a_picker_refuses_are_told_of_those_that_are_taken(node, topic):
    def picker(_topic, key, _partitions):
        return 7 if key == b"bad" else 0

    with serving(gateway_of(node, picker=picker)) as client:
        client.post(f"/sync/{topic}", content=b"first")
        for path in ("batch/sync", "sync"):
            reply = client.post(f"/{path}/{topic}", data={"good": "taken", "bad": "refused"})
            assert reply.status_code == 207
            assert reply.text.count("PickerFailed") == 1
    assert stored(node, topic) == [b"first", b"taken", b"taken"]


def test_a_head_request_never_follows(node, topic):
    node.put(topic, b"x")
    with serving(gateway_of(node)) as client:
        assert client.head(f"/topics/{topic}").status_code == 200
        reply = client.head(f"/topics/{topic}", headers={"Accept": "text/event-stream"})
        assert reply.status_code == 406
