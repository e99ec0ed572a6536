"""Where messages are read from: a server, the files in its folder, or an archive of them."""

from poe.spark.broker_segments import BrokerSegments
from poe.spark.folder_segments import FolderSegments
from poe.spark.read_options import ReadOptions
from poe.spark.segments import Segments
from poe.spark.server_options import DEFAULT_SERVER


def open_segments(options: ReadOptions, *, is_known: bool) -> Segments:
    """Return where to read from.

    Args:
        options: of the read.
        is_known: whether the place has been read from before; so that a server which is away is
            waited for, while one that never was there is an error at once.

    Raises:
        OptionError: the path is no server's folder.
        ReadFailed: there is no such archive.
    """
    stored: Segments | None = None
    if options.path is not None:
        stored = FolderSegments(options.path)
    elif options.archive is None or options.servers:
        stored = BrokerSegments(
            options.servers or (DEFAULT_SERVER,),
            retry_timeout_s=options.retry_timeout,
            is_known=is_known,
        )
    if options.archive is not None:
        # It loads pandas by way of pyarrow.dataset: 0.2 s for each of the processes that Spark
        # starts to plan and to read, which most reads do not need.
        from poe.spark.archived_segments import ArchivedSegments  # noqa: PLC0415

        return ArchivedSegments(options.archive, stored)
    assert stored is not None
    return stored
