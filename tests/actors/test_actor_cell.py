"""What a cell does beyond its actor's life."""

from poe.actors.actor_cell import ActorCell
from tests.actors.puppet import Puppet


def test_ending_twice_tells_links_and_monitors_once(system):
    ref, watcher = system.start(Puppet), system.start(Puppet)
    system.call(watcher, lambda puppet, _: puppet.monitor(ref) and None)
    system.run_outside(lambda: (ref.cell.end("first"), ref.cell.end("second")))
    ((_, down),) = system.get_state(watcher)["log"]
    assert down.reason == "first"


def test_an_ended_actor_is_forgotten(system):
    ref = system.start(Puppet, name="name")
    system.call(ref, lambda puppet, _: puppet.start_link(Puppet) and None)
    system.exit(ref, "kill")
    cell: ActorCell = ref.cell
    assert (cell.instance, cell.links, cell.monitors) == (None, None, None)
    assert system.whereis("name") is None


def test_posted_messages_arrive_in_order(system):
    ref = system.start(Puppet)

    def post():
        for number in range(3):
            ref.cell.post(number)

    system.run_outside(post)
    assert system.get_state(ref)["log"] == [("info", number) for number in range(3)]
