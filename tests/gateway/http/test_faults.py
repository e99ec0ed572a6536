"""What a client is told when the broker refuses, is slow, or loses its answers."""

import pytest

from poe.errors import InvalidMessage, Overloaded
from poe.testing import broker
from tests.gateway.http.front import Front

pytestmark = pytest.mark.slow

KEYED = {"records": [{"value": key, "key": key} for key in "abcdef"]}
PRODUCER = ("partitions={two=2}", "strategy=custom", "reconnect_max_s=0.2")


@pytest.fixture(scope="module")
def faulty():
    with broker() as faulty:
        yield faulty


@pytest.fixture(scope="module")
def patient(faulty):
    options = [word for each in PRODUCER for word in ("--producer", each)]
    with Front(faulty.url, "--sync-timeout-s", 1, *options) as front:
        yield front


@pytest.fixture(autouse=True)
def proven(patient):
    """A topic is the same to the gateway before and after the first message: here, after."""
    for topic in ("one", "two"):
        assert patient.http.post(f"/sync/{topic}", json=KEYED).status_code == 200


def test_a_part_that_was_refused_is_told_beside_the_part_that_was_not(patient, faulty):
    before = len(faulty.collected("two", partitions=2))
    faulty.fail(InvalidMessage(1, 0))
    reply = patient.http.post("/sync/two", json=KEYED)
    assert reply.status_code == 207, reply.text
    told = reply.json()
    errors = [each["error"]["name"] for each in told["deliveries"] if "error" in each]
    assert 0 < len(errors) < 6
    assert set(errors) == {"InvalidMessage"}
    assert told["delivered"] == 6 - len(errors)
    assert len(faulty.collected("two", partitions=2)) == before + told["delivered"]
    places = [(each["partition"], "error" in each) for each in told["deliveries"]]
    assert len(set(places)) == 2, "each partition was delivered whole, or not at all"


def test_what_is_refused_whole_is_no_success(patient, faulty):
    faulty.fail(InvalidMessage(1, 0))
    reply = patient.http.post("/sync/one", content=b"x")
    assert reply.status_code == 413
    assert reply.json()["error"]["name"] == "InvalidMessage"


def test_what_may_be_tried_again_is_tried_again(patient, faulty):
    faulty.fail(Overloaded("in_flight_max", 1), count=3)
    assert patient.http.post("/sync/one", content=b"again").status_code == 200
    assert [each.value for each in faulty.collected("one")][-1] == b"again"


def test_an_answer_that_is_lost_doubles_nothing(patient, faulty):
    faulty.lose_replies(2)
    assert patient.http.post("/sync/one", content=b"once").status_code == 200
    assert [each.value for each in faulty.collected("one")].count(b"once") == 1


def test_a_broker_that_is_too_slow_is_told_as_what_may_have_been_done(patient, faulty):
    faulty.set_latency(1.5)
    try:
        reply = patient.http.post("/sync/one", content=b"slow")
    finally:
        faulty.set_latency(0)
    assert reply.status_code == 504
    assert "Retry-After" not in reply.headers
