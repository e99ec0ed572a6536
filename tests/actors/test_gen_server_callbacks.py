"""What happens when a callback is missing, and what counts as state."""

import pytest

from poe.actors import ActorDead, GenServer


class Bare(GenServer):
    """Overrides nothing but `init`."""

    def init(self, number):
        self.number = number


@pytest.fixture
def bare(system):
    return system.start(Bare, 7)


def test_a_call_without_handle_call_crashes_the_actor_and_names_the_class(system, bare):
    with pytest.raises(ActorDead) as caught:
        system.call(bare, "request")
    assert isinstance(caught.value.reason, TypeError)
    assert str(caught.value.reason) == "Bare has no handle_call for str"


def test_a_cast_without_handle_cast_crashes_the_actor(system, bare):
    system.cast(bare, "message")
    assert not system.is_alive(bare)


def test_a_message_without_handle_info_is_logged_and_dropped(system, bare, caplog):
    system.run_queue.post_from_outside(bare.cell, "message", None)
    assert system.is_alive(bare)
    assert "dropped an unexpected str" in caplog.text


def test_the_state_holds_no_attribute_of_the_runtime(system, bare):
    assert system.get_state(bare) == {"number": 7}
    system.replace_state(bare, lambda _: {"other": 8})
    assert system.get_state(bare) == {"other": 8}
