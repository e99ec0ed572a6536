"""3xx: frames and connections."""

from poe.errors.root import PoeError


class ProtocolError(PoeError):
    """Bytes or calls that break the socket protocol."""

    code = 300


class LocalProtocolError(ProtocolError):
    """We were asked to send what the protocol does not allow."""

    code = 301


class RemoteProtocolError(ProtocolError):
    """The peer sent what the protocol does not allow."""

    code = 302


class FrameTooLarge(RemoteProtocolError):
    """The peer announces a frame that exceeds `frame_max`."""

    code = 303

    def __init__(self, size_bytes: int, frame_max: int) -> None:
        self.size_bytes = size_bytes
        self.frame_max = frame_max
        super().__init__(
            f"frame of {size_bytes} bytes is refused; send at most {frame_max} (option frame_max)"
        )


class ConnectionClosed(ProtocolError):
    """The peer closed the connection; a request under way may have been done."""

    code = 304


class ServerError(ProtocolError):
    """The server answered with an error frame whose code this client does not know."""

    code = 305

    def __init__(self, remote_code: int, name: str, message: str) -> None:
        self.remote_code = remote_code
        self.name = name
        super().__init__(f"server says {name} ({remote_code}): {message}")


class ConnectFailed(ProtocolError):
    """No server could be reached at the address; nothing was sent."""

    code = 306
    retriable = True

    def __init__(self, host: str, port: int, reason: str) -> None:
        self.host = host
        self.port = port
        self.reason = reason
        super().__init__(
            f"cannot reach a server at {host}:{port} ({reason}); check the address, and that it "
            "runs"
        )


class OriginalServer(ProtocolError):
    """The server is the original Poe, which cannot do what was asked; nothing was done."""

    code = 307

    def __init__(self, server: str, lacking: str) -> None:
        self.server = server
        self.lacking = lacking
        super().__init__(
            f"{server} is the original Poe; it knows no {lacking}, only plain puts and reads of 2 "
            "messages or more"
        )
