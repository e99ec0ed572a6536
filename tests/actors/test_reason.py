"""Which ends are failures."""

import pytest

from poe.actors import ActorDead, ActorExit, Exit, Stop, is_orderly
from poe.errors import PoeError
from poe.supervision import ChildSpec, Supervisor, SupervisorFlags
from tests.actors.puppet import Puppet, in_actor


@pytest.mark.parametrize(
    "reason", ["normal", "shutdown", ("shutdown", "because"), ("shutdown", None)]
)
def test_normal_and_shutdown_are_orderly(reason):
    assert is_orderly(reason)


@pytest.mark.parametrize(
    "reason", ["kill", "killed", "noproc", ("shutdown",), ("shutdown", 1, 2), ValueError(), None, 0]
)
def test_everything_else_is_a_failure(reason):
    assert not is_orderly(reason)


class Incomparable:
    """As an array of numbers: whether it equals something is no plain yes or no."""

    def __eq__(self, other):
        msg = "the truth value is ambiguous"
        raise ValueError(msg)

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("reason", [Incomparable(), ("shutdown", Incomparable())])
@pytest.mark.parametrize("trap_exits", [False, True])
def test_a_reason_that_cannot_be_compared_ends_an_actor_and_its_supervisor_restarts_it(
    system, reason, trap_exits
):
    spec = ChildSpec(id="child", actor=Puppet, name="child", kwargs={"trap_exits": trap_exits})
    supervisor = system.start(Supervisor, SupervisorFlags(intensity=5), [spec])
    for way in (lambda _: Stop(reason), raise_with(reason)):
        before = system.whereis("child")
        system.cast("child", way)
        assert system.is_alive(supervisor)
        assert system.whereis("child") not in (None, before)
    system.exit(supervisor, reason)
    assert system.is_alive(supervisor) is False


class Speechless(PoeError):
    """An error that has no text."""

    code = 9999

    def __str__(self):
        msg = "there is no text"
        raise ValueError(msg)


def test_a_supervisor_outlives_a_crash_of_which_there_is_no_text(system, caplog):
    spec = ChildSpec(id="child", actor=Puppet, name="child")
    supervisor = system.start(Supervisor, SupervisorFlags(), [spec])
    system.cast("child", raise_with(Speechless()))
    assert system.is_alive(supervisor)
    assert "child_terminated of child 'child': Speechless" in caplog.text


def raise_with(reason):
    def end(_):
        raise ActorExit(reason)

    return end


def test_a_stranger_cannot_harm_an_actor_with_a_reason_that_cannot_be_compared(system):
    log: list[tuple[str, Exit]] = []
    ref = system.start(Puppet, log, trap_exits=True)
    reason = Incomparable()
    in_actor(system, lambda stranger: stranger.exit(ref, reason))
    assert system.is_alive(ref)
    assert [(way, message.reason is reason) for way, message in log] == [("info", True)]


def test_stop_actor_tells_such_a_reason_from_another(system):
    asked, other = Incomparable(), Incomparable()

    async def stop(puppet, _):
        obedient = await puppet.start_link(Puppet)
        puppet.unlink(obedient)
        await puppet.stop_actor(obedient, asked)
        stubborn = await puppet.start_link(Puppet, on_terminate=raise_with(other))
        puppet.unlink(stubborn)
        with pytest.raises(ActorDead) as error:
            await puppet.stop_actor(stubborn, asked)
        return error.value.reason

    assert system.call(system.start(Puppet), stop) is other
