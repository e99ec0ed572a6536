"""A TLS connection that several threads use, with the methods of a plain socket."""

import socket
import ssl
import threading


class SharedTls:
    """Sends and receives without blocking; OpenSSL takes one call at a time, whichever it is.

    What has come is not all in the kernel: OpenSSL decrypts whole records, and `pending` tells
    how much of the last one nobody has received yet.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        """Own a connection whose handshake is done."""
        self._connection = connection
        self._turn = threading.Lock()
        connection.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, to be watched."""
        return self._connection.fileno()

    def send(self, data: bytes | memoryview) -> int:
        """Send what the kernel takes, as records; return how many bytes of it are out.

        What is not has to be given again as it is: OpenSSL may have encrypted some of it.

        Raises:
            BlockingIOError: nothing is.
            OSError: the connection is lost.
        """
        view = memoryview(data)
        sent = 0
        with self._turn:
            try:
                while sent < len(view):
                    sent += self._connection.send(view[sent:])
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as error:
                if not sent:
                    raise BlockingIOError from error
        return sent

    def recv_into(self, room: memoryview) -> int:
        """Receive once; 0 at the end of the stream.

        Raises:
            BlockingIOError: there is nothing, or not enough of a record.
            OSError: the connection is lost.
        """
        with self._turn:
            try:
                return self._connection.recv_into(room)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                raise BlockingIOError from error

    def pending(self) -> int:
        """Return how many bytes are decrypted and not received."""
        with self._turn:
            return self._connection.pending()

    def shutdown(self, how: int) -> None:
        """End the stream at once; who receives meanwhile finds its end."""
        # That of SSLSocket lets go of what another thread may be in.
        socket.socket.shutdown(self._connection, how)

    def close(self) -> None:
        """Give the descriptor back; nobody receives."""
        self._connection.close()
