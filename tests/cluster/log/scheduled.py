"""Three whole nodes in simulated time with a replicated topic, as schedules use them."""

from functools import partial
from random import Random

import pytest

from poe.broker import control
from torture.simulated_log_nodes import LogCluster, read_all


class Nodes(LogCluster):
    """Three nodes with a topic `t`."""

    def __init__(self, count_limit=100):
        super().__init__(Random("schedules"), 3, count_limit)
        self.advance(0.1)
        self.settle()
        arguments = {"topic": b"t", "properties": {"replicas": 3}}
        self.asked("a", partial(control, op="topic_create", arguments=arguments))
        self.pass_time(1.0)

    def pass_time(self, seconds):
        self.advance(seconds)
        self.settle()
        self.advance(0.001)

    def ask(self, name, request):
        answers: list[object] = []
        self.nodes[name].ask(request, answers.append)
        return answers

    def asked(self, name, request, within_s=5.0):
        answers = self.ask(name, request)
        for _ in range(int(within_s / 0.1)):
            if answers:
                break
            self.pass_time(0.1)
        return answers[0]

    def put(self, name, message):
        return self.ask(name, lambda handler: handler.put(b"t", [message]))

    def messages(self, name):
        return [message for _, message in self.asked(name, partial(read_all, b"t"))]

    @property
    def stream(self):
        [stream] = self.log.streams.values()
        return stream

    def steps(self, may=None, count=1000):
        """Do what waits, in lanes that may go on."""
        self.log.may = may
        for _ in range(count):
            if not self.log.step():
                break
        self.log.may = None

    def steps_until(self, is_so):
        for _ in range(1000):
            if is_so():
                return
            assert self.log.step()
        pytest.fail("it never came to that")
