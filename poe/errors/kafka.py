"""58x: what Apache Kafka, or librdkafka, refuses."""

from poe.errors.root import PoeError, shown


class KafkaMissing(PoeError):
    """The library that speaks to Kafka is not installed."""

    code = 580

    def __init__(self) -> None:
        super().__init__(
            "kafka:// needs confluent-kafka; install the extra poe-queue[kafka]: "
            "pip install '.[kafka]' in a checkout"
        )


class KafkaRefused(PoeError):
    """Kafka does not take what was sent, or does not let it be read, and never will.

    Attributes:
        kafka_code: Kafka's number of the error; negative ones are librdkafka's own.
    """

    code = 581

    def __init__(self, topic: bytes, kafka_code: int, reason: str) -> None:
        self.topic = topic
        self.kafka_code = kafka_code
        self.reason = reason
        super().__init__(f"Kafka refuses topic {shown(topic)}: {reason} (error {kafka_code})")


class KafkaNotReady(KafkaRefused):
    """Kafka cannot take it now: a leader moves, replicas are missing; nothing was stored."""

    code = 582
    retriable = True
