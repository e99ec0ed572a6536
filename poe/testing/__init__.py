"""For tests of your own programs: brokers that fail on order; for actors, simulated time; networks.

Nothing of Poe itself imports this package.
"""

from poe.actors.clock import SimulatedClock
from poe.testing.broker import broker
from poe.testing.crashes import Crash, CrashingSystem, InjectedCrash
from poe.testing.simulated_fabric import Faults, Hub, SimulatedFabric, SimulatedNetwork, Spans, Told
from poe.testing.simulated_system import SimulatedSystem, try_seeds
from poe.testing.waiting import wait_until

__all__ = [
    "Crash",
    "CrashingSystem",
    "Faults",
    "Hub",
    "InjectedCrash",
    "SimulatedClock",
    "SimulatedFabric",
    "SimulatedNetwork",
    "SimulatedSystem",
    "Spans",
    "Told",
    "broker",
    "try_seeds",
    "wait_until",
]
