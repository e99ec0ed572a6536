"""What a newcomer gets wrong is answered by an error that says what to do, and harms nobody."""

import asyncio
import logging
import math
from typing import Any

import pytest

from poe.actors import (
    ActorDead,
    CallTimeout,
    Error,
    GenServer,
    LoopSystem,
    Reply,
    StartFailed,
    SystemShutDown,
)
from poe.errors import CallFromActor, InvalidTimeout
from poe.thespian import HostedSystem
from tests.actors.puppet import Puppet, in_actor


class WithArguments(GenServer):
    """Takes its arguments at the wrong place."""

    def __init__(self, size):
        self.size = size


@pytest.mark.parametrize("junk", [Puppet(), "Puppet", dict, None])
def test_what_is_no_actor_class_cannot_be_started(system, junk):
    with pytest.raises(TypeError, match="use a subclass of GenServer"):
        system.start(junk)


def test_arguments_of_a_constructor_are_pointed_to_init(system):
    with pytest.raises(TypeError, match=r"'size'; an actor takes its arguments in init\(self"):
        system.start(WithArguments, 3)


@pytest.mark.parametrize("name", [3, "", ["a"], b"a"])
def test_a_name_is_text(system, name):
    with pytest.raises(TypeError, match="use a str that is not empty"):
        system.start(Puppet, name=name)

    def register(puppet):
        with pytest.raises(TypeError, match="use a str that is not empty"):
            puppet.register(name)

    in_actor(system, register)


@pytest.mark.parametrize("junk", [42, "self", False])
def test_an_init_that_returns_something_else_has_failed_to_start(system, junk):
    for on_init in (lambda _: junk, lambda _: _later(junk)):
        with pytest.raises(StartFailed) as caught:
            system.start(Puppet, on_init=on_init, name="junk")
        assert caught.value.reason == ("bad_return_value", junk)
        assert system.whereis("junk") is None


async def _later(value):
    return value


def test_the_parent_of_such_an_actor_hears_of_it_once_and_lives(system):
    async def start(puppet, _):
        try:
            await puppet.start_link(Puppet, on_init=lambda _: 42)
        except StartFailed as failure:
            return failure.reason

    parent = system.start(Puppet)
    assert system.call(parent, start) == ("bad_return_value", 42)
    assert system.is_alive(parent)


@pytest.mark.parametrize("junk", [None, 3, object()], ids=["none", "number", "object"])
def test_what_is_no_ref_is_refused_by_every_operation(system, junk):
    for use in (
        lambda: system.call(junk, "x"),
        lambda: system.cast(junk, "x"),
        lambda: system.exit(junk, "x"),
        lambda: system.stop(junk),
        lambda: system.is_alive(junk),
        lambda: system.when_ended(junk, print),
    ):
        with pytest.raises(TypeError, match="is no actor's ref; use"):
            use()
    for operation, *arguments in (
        ("call", "x"),
        ("cast", "x"),
        ("exit", "x"),
        ("link",),
        ("unlink",),
        ("monitor",),
    ):
        puppet = system.start(Puppet)

        def use_inside(puppet, _, operation=operation, arguments=arguments):
            with pytest.raises(TypeError, match="is no actor's ref; use"):
                getattr(puppet, operation)(junk, *arguments)

        system.call(puppet, use_inside)


def test_a_name_where_a_ref_is_needed_is_refused_with_the_way_to_one(system):
    def link(puppet):
        with pytest.raises(TypeError, match=r"use whereis\(name\)"):
            puppet.link("name")

    in_actor(system, link)


def test_a_name_does_for_exit_stop_and_is_alive(system):
    assert not system.is_alive("a")
    system.start(Puppet, name="a")
    assert system.is_alive("a")
    system.exit("a", "boom")
    assert not system.is_alive("a")
    system.exit("a", "boom")
    system.start(Puppet, name="a")
    system.stop("a")
    assert not system.is_alive("a")
    with pytest.raises(ActorDead):
        system.stop("a")


@pytest.mark.parametrize("delay_s", [-1, math.nan, math.inf, 10**400])
def test_a_time_that_cannot_be_waited_for_is_refused(system, delay_s):
    def use(puppet):
        for operation, *arguments in (("send_after", "x"), ("sleep",)):
            with pytest.raises(ValueError, match="use 0 or more seconds"):
                getattr(puppet, operation)(delay_s, *arguments)

    in_actor(system, use)


@pytest.mark.parametrize("timeout_s", [-1, math.nan, "5"])
def test_a_wrong_time_limit_of_a_call_is_raised_at_its_caller(system, timeout_s):
    async def wait(puppet):
        await puppet.sleep(10)

    caught: list[BaseException] = []

    async def call(puppet):
        try:
            await puppet.call(blocked, "x", timeout_s)
        except InvalidTimeout as wrong:
            caught.append(wrong)

    blocked = system.start(Puppet)
    system.cast(blocked, wait)
    caller = system.start(Puppet)
    system.cast(caller, call)
    assert len(caught) == 1
    assert system.is_alive(caller)


def test_time_does_not_go_back(system):
    with pytest.raises(ValueError, match=r"advance\(-1\): time does not go back"):
        system.advance(-1)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("mailbox_max", 0),
        ("mailbox_max", "1"),
        ("hibernate_after_s", -1),
        ("hibernate_after_s", "1"),
        ("hibernate_after_s", math.inf),
    ],
)
def test_a_setting_out_of_range_is_refused_with_the_class(setting, value):
    with pytest.raises(ValueError, match=f"Wrong: {setting} is .*; use"):
        type("Wrong", (GenServer,), {setting: value})


@pytest.mark.parametrize(
    ("error", "told"), [("not enough money", "str"), (ValueError, "the class ValueError")]
)
@pytest.mark.parametrize("way", ["Error", "reply_error"])
def test_an_error_is_an_exception(system, way, error, told):
    def answer(puppet, caller):
        return Error(error) if way == "Error" else puppet.reply_error(caller, error)

    with pytest.raises(ActorDead) as caught:
        system.call(system.start(Puppet), answer)
    assert isinstance(caught.value.reason, TypeError)
    assert str(caught.value.reason).endswith(f"such as ValueError('why'), not {told}")


def test_the_end_of_a_ref_is_awaited_by_its_monitor(system):
    other = system.start(Puppet)

    async def wait(puppet):
        with pytest.raises(TypeError, match=f"takes what `monitor` gave, not {other};"):
            await puppet.wait_down(other)

    in_actor(system, wait)


def test_a_reply_is_followed_by_a_directive(system):
    puppet = system.start(Puppet)
    wrong: Any = 2
    with pytest.raises(ActorDead) as caught:
        system.call(puppet, lambda puppet, _: Reply(1, wrong))
    assert caught.value.reason == ("bad_return_value", "Reply")


def test_the_systems_own_methods_inside_an_actor_name_the_actors_operations(system):
    ref = system.start(Puppet)
    for use in (lambda: system.cast(ref, "x"), lambda: system.start(Puppet)):

        def inside(puppet, use=use):
            words = r"await self.call.*self.cast.*await self.start_link"
            with pytest.raises(CallFromActor, match=words):
                use()

        in_actor(system, inside)


def test_a_wait_of_asyncio_is_answered_with_the_actors_own(system, caplog):
    async def wait(_):
        await asyncio.sleep(0.1)

    with caplog.at_level(logging.ERROR), pytest.raises(ActorDead):
        in_actor(system, wait)
    assert "await self.sleep(seconds)" in caplog.text


def test_a_system_that_was_shut_down_says_so():
    with LoopSystem() as system:
        ref = system.start(Puppet, name="a")
    assert ref is not None
    assert not system.is_alive(ref)
    for use in (
        lambda: system.start(Puppet),
        lambda: system.call(ref, "x"),
        lambda: system.call("a", "x"),
    ):
        with pytest.raises(SystemShutDown, match="this system was shut down; make a new one"):
            use()
    system.cast(ref, "x")
    system.shutdown()


def test_a_hosted_system_shuts_down_at_the_end_of_its_block():
    with HostedSystem("simpleSystemBase") as system:
        ref = system.start(GenServer)
        assert ref is not None
        assert system.is_alive(ref)
    with pytest.raises((ActorDead, CallTimeout)):
        system.call(ref, "x", timeout_s=0.1)
