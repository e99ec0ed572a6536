"""Clients: the asyncio socket, of the shape of the blocking one; producers, and consumers.

What they get in with, `Tls` and credentials, is here, too. Producers and consumers are loaded when
they are first asked for: producers bring the actor runtime with them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from poe.client.async_socket import AsyncSocket, connect
from poe.security import Certificate, PasswordFile, Scram, Tls, Token, TokenFile

if TYPE_CHECKING:
    from poe.client.consumer.async_consumer import AsyncConsumer
    from poe.client.consumer.consumer import Consumer
    from poe.client.consumer.source import ConsumerStatistics, Fetched, Received
    from poe.client.group.async_queue import AsyncQueue
    from poe.client.group.job import Job
    from poe.client.group.queue import Queue
    from poe.client.group.worker import GroupWorker
    from poe.client.producer.async_producer import AsyncProducer
    from poe.client.producer.delivery import Buffered, Delivery, Failed, Sent
    from poe.client.producer.payload import Message
    from poe.client.producer.producer import Producer
    from poe.client.producer.topic_info import TopicInfo, Undelivered, WorkerInfo

_LATE = {
    "AsyncConsumer": "consumer.async_consumer",
    "AsyncProducer": "producer.async_producer",
    "AsyncQueue": "group.async_queue",
    "Buffered": "producer.delivery",
    "Consumer": "consumer.consumer",
    "ConsumerStatistics": "consumer.source",
    "Delivery": "producer.delivery",
    "Failed": "producer.delivery",
    "Fetched": "consumer.source",
    "GroupWorker": "group.worker",
    "Job": "group.job",
    "Message": "producer.payload",
    "Producer": "producer.producer",
    "Queue": "group.queue",
    "Received": "consumer.source",
    "Sent": "producer.delivery",
    "TopicInfo": "producer.topic_info",
    "Undelivered": "producer.topic_info",
    "WorkerInfo": "producer.topic_info",
}

__all__ = [
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncSocket",
    "Buffered",
    "Certificate",
    "Consumer",
    "ConsumerStatistics",
    "Delivery",
    "Failed",
    "Fetched",
    "GroupWorker",
    "Job",
    "Message",
    "PasswordFile",
    "Producer",
    "Queue",
    "Received",
    "Scram",
    "Sent",
    "Tls",
    "Token",
    "TokenFile",
    "TopicInfo",
    "Undelivered",
    "WorkerInfo",
    "connect",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - as Python has it
    if name in _LATE:
        return getattr(importlib.import_module(f"poe.client.{_LATE[name]}"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
