"""What the process tells its caller: one number for each way a command can end."""

from enum import IntEnum

from poe.errors import (
    ClusterMissing,
    ConfigError,
    ConnectFailed,
    CorruptIdentity,
    ForeignCluster,
    HttpMissing,
    InvalidTopicName,
    KafkaMissing,
    LocalProtocolError,
    LogEngineMissing,
    PoeError,
    PointerOutOfRange,
    PortInUse,
    ProcessStartFailed,
    SecurityMissing,
    SegmentLocked,
    SparkMissing,
    StoreLocked,
    TlsFailed,
)

_USAGE_ERRORS = (
    ClusterMissing,
    ConfigError,
    CorruptIdentity,
    ForeignCluster,
    HttpMissing,
    InvalidTopicName,
    KafkaMissing,
    LocalProtocolError,
    LogEngineMissing,
    PointerOutOfRange,
    PortInUse,
    SecurityMissing,
    SegmentLocked,
    SparkMissing,
    StoreLocked,
)


class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILURE = 1
    """It failed at run time, or `check` found damage."""
    USAGE = 2
    """Arguments, configuration or folder cannot be used; nothing was done."""
    UNREACHABLE = 3
    """No server answers at the address."""
    OUTPUT_FAILED = 4
    """Done, but standard output could not take the result."""
    INTERRUPTED = 130
    """Ctrl-C, as shells report it."""
    TERMINATED = 143
    """SIGTERM, likewise; a server ends with 0 then."""

    @classmethod
    def of(cls, error: PoeError) -> "ExitCode":
        """Return the code for an error that ended a command."""
        if isinstance(error, ConnectFailed | TlsFailed):
            return cls.UNREACHABLE
        if isinstance(error, ProcessStartFailed) and error.report:
            # A process of ours, which has ended with such a code.
            return cls.USAGE if error.why == ("exit_status", cls.USAGE) else cls.FAILURE
        return cls.USAGE if isinstance(error, _USAGE_ERRORS) else cls.FAILURE
