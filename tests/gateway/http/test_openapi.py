"""The gateway does what its document says, whatever a generator of requests comes up with."""

import json
import re

import pytest
from hypothesis import HealthCheck, settings

from poe.gateway.http import GatewayOptions
from poe.gateway.http.body import NDJSON
from poe.gateway.http.openapi import document
from poe.node import Node
from tests.gateway.http.front import Front

schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis")

pytestmark = pytest.mark.slow

REFUSED = [400, 404, 405, 406, 409, 410, 413, 415]
ACCEPTED = ["2xx", 404, 409, 410]
"""A topic, or what followed a pointer, need not be there, or is there already."""
OF_GROUPS = [*ACCEPTED, 400, 429]
"""Nor need a group or a member be. And no schema says that a range is not empty, or a session not
less than two heartbeats, or which names of topics the broker takes; nor that of a queue, whose
messages are those of a topic without envelopes, none may be empty, or of a server without a cluster
that there are no copies."""

config = schemathesis.Config.from_dict(
    {
        "checks": {
            "negative_data_rejection": {"expected-statuses": REFUSED},
            "positive_data_acceptance": {"expected-statuses": ACCEPTED},
        },
        "operations": [
            {
                "include-path-regex": "^/(groups|queues)",
                "checks": {"positive_data_acceptance": {"expected-statuses": OF_GROUPS}},
            }
        ],
    }
)
EXAMPLES = settings.get_profile(settings.get_current_profile_name()).max_examples // 2
"""Each is a request to a real gateway."""

schema = schemathesis.openapi.from_dict(document(GatewayOptions()), config=config)


@schemathesis.hook
def filter_query(context, query):
    """Leave out what no pattern can.

    A partition that a pointer names twice is refused, or a time before 1970.
    """
    query = query or {}
    partitions = [int(each) for each in re.findall(r"(\d+):", str(query.get("pointer")))]
    is_new = "1970" < str(query.get("at", "2026"))[:4] < "4253"
    return len(set(partitions)) == len(partitions) and is_new


@schemathesis.hook
def map_body(context, body):
    """Wait for no member that a test has made by chance."""
    if isinstance(body, dict) and isinstance(body.get("wait_s"), int | float):
        body["wait_s"] = min(body["wait_s"], 0.01)
    return body


@schemathesis.serializer(NDJSON)
def ndjson(context, value):
    """Each value in a line."""
    return json.dumps(value).encode() + b"\n"


@pytest.fixture(scope="module")
def roomy(tmp_path_factory):
    """A gateway that takes all that the document allows, empty values too, and nothing else."""
    options = ("--producer", "envelope=true", "--topics-max", 100_000)
    with (
        Node(dir=tmp_path_factory.mktemp("strict"), port=0) as node,
        Front(node, *options) as front,
    ):
        yield front


@schema.parametrize()
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_requests_get_the_answers_that_the_document_tells_of(case, roomy):
    if {"at", "delay_s"} <= (case.query or {}).keys():
        return  # two times are refused, and no schema of a parameter can say so
    case.call_and_validate(base_url=str(roomy.http.base_url), timeout=20)


def test_the_document_that_is_served_is_this_one(front):
    assert front.http.get("/openapi.json").json() == document(GatewayOptions())
