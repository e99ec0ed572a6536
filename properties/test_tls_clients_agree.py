"""By TLS a consumer hands out each message once, and a producer stores each once, in order.

Connections are reset at any time, in the midst of records and handshakes.
"""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from poe.client import Producer
from properties.test_consumer_hands_out_each_message_once import ConsumerAgreement
from tests.tls import Certificates
from tests.tls_broker import TlsBroker

FEWER = settings(max_examples=max(5, settings().max_examples // 10))
STEPS = st.lists(
    st.one_of(st.just("cut"), st.tuples(st.integers(1, 30), st.sampled_from([10, 20_000]))),
    max_size=8,
).filter(lambda steps: steps.count("cut") <= 2)


FOLDER = TemporaryDirectory(prefix="poe-certificates-")


@cache
def certificates() -> Certificates:
    return Certificates.make(Path(FOLDER.name))


class TlsConsumerAgreement(ConsumerAgreement):
    """The same by TLS, through what knows nothing of frames."""

    def make_broker(self):
        broker = TlsBroker(certificates())
        return broker, broker.ways


TestTlsConsumerAgreement = TlsConsumerAgreement.TestCase
TestTlsConsumerAgreement.settings = FEWER


@FEWER
@given(steps=STEPS, linger_s=st.sampled_from([0.0, 0.002]))
def test_each_message_is_stored_once_and_in_order(steps, linger_s):
    sent: list[bytes] = []
    with TlsBroker(certificates()) as broker:
        with Producer(
            broker.url, linger_s=linger_s, reconnect_min_s=0.01, **broker.ways
        ) as producer:
            for step in steps:
                if step == "cut":
                    broker.cut()
                    continue
                count, size = step
                for _ in range(count):
                    sent.append(b"%d:" % len(sent) + b"x" * size)
                    producer.produce_async_batched(b"t", sent[-1])
            assert producer.flush(30)
        with broker.node.consumer(b"t") as consumer:
            assert [each.value for each in consumer] == sent
