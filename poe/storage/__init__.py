"""Storage: turns batches of messages into files under one base folder, and pointers into slices.

A `Store` holds topics, a topic is a list of `Segment`s, a segment is a data and an index file. All
of it is synchronous and knows neither actors nor sockets; files and time are handed in, so that
every fault can be played through. Formats are those of the original appendix.

Folders, each of which imports from those below it only:
    store      a base folder: topics, what is known of all, and tools for a stopped one
    segment    one segment: appending to its files, and reading them
    recovery   what of a segment's files can be trusted
    formats    what lies in which file
    (here)     the layer of files; and `slab_log`, a log of its own, beside recovery
"""

from poe.record import POINTER_MAX
from poe.storage.archive import (
    Archive,
    ArchivedFile,
    ArchivedPlace,
    Manifest,
    RowGroup,
)
from poe.storage.clock import Clock, SystemClock
from poe.storage.files import Files, FileSlice, FolderEntry, IndexedSlice, Mode, OpenFile
from poe.storage.formats.receipt_file import PLACE_UNKNOWN, PutKey
from poe.storage.formats.record import Messages, RecordBatch, decode_entry, decode_records
from poe.storage.formats.store_meta import Event, read_store_id
from poe.storage.real_files import RealFiles
from poe.storage.segment.producers import PRODUCER_BYTES, LastPut, Producers
from poe.storage.segment.segment import Segment
from poe.storage.segment.segment_options import SegmentOptions
from poe.storage.segment.topic_options import TopicOptions
from poe.storage.shared_sync import SharedSync
from poe.storage.store.check import (
    SegmentCheck,
    check_events,
    check_foreign,
    check_properties,
    check_removals,
    check_segments,
    stopped_store,
)
from poe.storage.store.free_space import FreeSpace
from poe.storage.store.pointer_bound import PointerBound
from poe.storage.store.removals import Removals, RemovedExtent
from poe.storage.store.repair import repair_segments
from poe.storage.store.rest import is_left_open
from poe.storage.store.shared_folder import SharedFolder
from poe.storage.store.store import Store
from poe.storage.store.store_options import StoreOptions
from poe.storage.store.topic_descriptions import TopicDescriptions
from poe.storage.store.unlock import foreign_locks, unlock_segments

__all__ = [
    "PLACE_UNKNOWN",
    "POINTER_MAX",
    "PRODUCER_BYTES",
    "Archive",
    "ArchivedFile",
    "ArchivedPlace",
    "Clock",
    "Event",
    "FileSlice",
    "Files",
    "FolderEntry",
    "FreeSpace",
    "IndexedSlice",
    "LastPut",
    "Manifest",
    "Messages",
    "Mode",
    "OpenFile",
    "PointerBound",
    "Producers",
    "PutKey",
    "RealFiles",
    "RecordBatch",
    "Removals",
    "RemovedExtent",
    "RowGroup",
    "Segment",
    "SegmentCheck",
    "SegmentOptions",
    "SharedFolder",
    "SharedSync",
    "Store",
    "StoreOptions",
    "SystemClock",
    "TopicDescriptions",
    "TopicOptions",
    "check_events",
    "check_foreign",
    "check_properties",
    "check_removals",
    "check_segments",
    "decode_entry",
    "decode_records",
    "foreign_locks",
    "is_left_open",
    "read_store_id",
    "repair_segments",
    "stopped_store",
    "unlock_segments",
]
