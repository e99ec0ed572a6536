"""A broker without a node, on a disk that fails at will."""

import errno
from contextlib import contextmanager
from typing import Any, ClassVar

from poe.broker import (
    AppendixOptions,
    LocalRequest,
    RegistryOptions,
    RegistryParts,
    RoutingTable,
    control,
)
from poe.broker.appendix.server import REGISTRY, AppendixServer
from poe.broker.registry.appendix_servers import APPENDIX_SUP
from poe.broker.registry.topic_registry import TopicRegistry
from poe.storage import RealFiles, SegmentOptions, Store, decode_records
from poe.supervision import (
    ChildSpec,
    CountChildren,
    Restart,
    Strategy,
    Supervisor,
    SupervisorFlags,
    call_supervisor,
)
from poe.testing import SimulatedClock, SimulatedSystem
from tests.broker.nodes import (
    BYTES_MAX,
    SimulatedWall,
    read_by_frames,
)
from tests.storage.faulty_files import FaultyFiles


class FragileServer(AppendixServer):
    """An appendix server that does not start on the segments whose paths are `broken`."""

    broken: ClassVar[set[str]] = set()

    def init(self, topic, segment, *shared):
        if segment.path in self.broken:
            raise RuntimeError(segment.path)
        super().init(topic, segment, *shared)


class FaultyBroker:
    """A registry and its appendix servers, on a store whose file layer fails at will."""

    def __init__(self, folder, appendix=None, **options: Any):
        self.folder = folder
        self.options = SegmentOptions(**options)
        self.appendix = appendix or AppendixOptions()
        self.files = FaultyFiles(RealFiles.at(folder))
        self.routes = RoutingTable()

    def start(self, recovered=lambda: None):
        """Open the store and start; `recovered` is called in between."""
        self.clock = SimulatedClock()
        self.system = SimulatedSystem(clock=self.clock)
        self.store = Store.open(self.files, self.options)
        recovered()
        template = ChildSpec(id="appendix_server", actor=FragileServer, restart=Restart.TEMPORARY)
        flags = SupervisorFlags(strategy=Strategy.SIMPLE_ONE_FOR_ONE)
        self.system.start(Supervisor, flags, [template], name=APPENDIX_SUP)
        self.start_registry()

    def start_registry(self):
        parts = RegistryParts(
            store=self.store,
            routes=self.routes,
            options=RegistryOptions(),
            appendix=self.appendix,
            clock=SimulatedWall(self.clock),
        )
        self.system.start(TopicRegistry, parts, name=REGISTRY)

    def stop(self):
        self.system.shutdown()
        self.store.close()
        self.routes.clear()

    def fail(self, operation, nth=0, error_number=errno.EIO, *, is_for_ever=False):
        self.files.fail(nth, error_number, operation, is_for_ever=is_for_ever)

    def restart(self):
        self.stop()
        self.start()

    def request(self, request):
        ref = self.system.start(LocalRequest, self.routes)
        assert ref is not None
        return self.system.call(ref, request, None)

    def put(self, topic, message):
        return self.request(lambda handler: handler.put(topic, [message]))

    def next(self, topic, pointer=0):
        return self.request(lambda handler: handler.next(topic, pointer))[1]

    def texts(self, topic):
        return [message for _, message in read_by_frames(self.read, topic)]

    def read(self, topic, pointer, limit):
        found = self.request(lambda handler: handler.get(topic, pointer, limit, BYTES_MAX))
        return [] if found is None else decode_records(found.read())

    def control(self, op, **arguments):
        return self.request(lambda handler: control(handler, op, arguments))

    def server_count(self):
        """Tell how many appendix servers live."""
        return call_supervisor(self.system, APPENDIX_SUP, CountChildren()).active


@contextmanager
def started(kind, folder):
    """Yield what starts brokers of a kind in a folder; at the end their disk is healed."""
    brokers: list[FaultyBroker] = []

    def start(**options):
        brokers.append(kind(folder, **options))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.files.heal()
        broker.stop()
