"""A callback that returns a class where an instance is meant, as in `return Stop`."""

import pytest

from poe.actors import Continue, Error, GenServer, IdleTimeout, LoopSystem, Reply, Stop
from poe.errors import ActorDead, StartFailed
from tests.waiting import wait_until

CLASSES = [Stop, Reply, Continue, IdleTimeout, Error]


class Returning(GenServer):
    """Returns what it gets."""

    def init(self, result=None):
        return result

    def handle_call(self, request, caller):
        return request

    def handle_cast(self, message):
        return message

    async def handle_info(self, message):
        return message

    def handle_continue(self, argument):
        return argument


@pytest.fixture
def system():
    with LoopSystem() as system:
        yield system


def told(result):
    return ("bad_return_value", f"the class {result.__name__}; return {result.__name__}(…)")


@pytest.mark.parametrize("result", CLASSES)
def test_it_ends_the_actor_with_a_reason_that_says_so(system, result):
    with pytest.raises(ActorDead) as caught:
        system.call(system.start(Returning), result)
    assert caught.value.reason == told(result)
    with pytest.raises(StartFailed) as refused:
        system.start(Returning, result)
    assert refused.value.reason == told(result)
    reasons: list[object] = []
    for send in (
        lambda ref: system.cast(ref, result),
        lambda ref: system.call(ref, Reply("x", Continue(result))),
    ):
        ref = system.start(Returning)
        system.when_ended(ref, reasons.append)
        send(ref)
    wait_until(lambda: reasons == [told(result)] * 2)


@pytest.mark.parametrize("reply", [int, GenServer, ValueError])
def test_another_class_is_an_answer_like_any_other(system, reply):
    ref = system.start(Returning)
    assert system.call(ref, reply) is reply
    assert system.call(ref, None) is None
    assert system.is_alive(ref)
