"""Passes an evaluator's calls to the host, which has them answered in the candidate's own sandbox, and the answers back.

Connections come over a socket in the scratch folder, so that processes which the evaluator starts can call too. A
connection's bytes are u32 size and as many bytes, both ways; what they mean is none of the relay's business.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Callable
from typing import Any

MAX_CONNECTIONS = 64
Send = Callable[[dict[str, Any], bytes], None]


class Connection:
    """One instance of the candidate, as the evaluator sees it."""

    def __init__(self, connection: socket.socket, number: int):
        self.socket = connection
        self.number = number
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.waits = False
        """A request is under way: the next one is not looked at before its answer is sent."""

    def take_request(self, cap: int) -> bytes | None:
        """Return a whole request, or None. Raises ValueError when it announces more than `cap` bytes."""
        if len(self.incoming) < 4:
            return None
        size = struct.unpack(">I", self.incoming[:4])[0]
        if size > cap:
            raise ValueError("too large")
        if len(self.incoming) < 4 + size:
            return None
        request = bytes(self.incoming[4 : 4 + size])
        del self.incoming[: 4 + size]
        return request


class Relay:
    """Serves the evaluator's connections while it runs.

    Args:
        path: of the socket.
        cap: bytes of one request.
        read_exactly: reads from the host.
        send: writes a frame to the host: `{"call": n}` and the request, or `{"closed": n}`.
    """

    def __init__(self, path: str, cap: int, read_exactly: Callable[[int], bytes], send: Send):
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        os.chmod(path, 0o666)
        self._listener.listen(MAX_CONNECTIONS)
        self._cap = cap
        self._read_exactly, self._send = read_exactly, send
        self._connections: dict[int, Connection] = {}  # by descriptor
        self._accepted = 0

    def register(self, poll: select.poll) -> None:
        """Add what the relay waits for, the host's answers among it."""
        poll.register(0, select.POLLIN)
        if len(self._connections) < MAX_CONNECTIONS:
            poll.register(self._listener.fileno(), select.POLLIN)
        for descriptor, connection in self._connections.items():
            wanted = 0 if connection.waits or connection.outgoing else select.POLLIN
            poll.register(descriptor, wanted | (select.POLLOUT if connection.outgoing else 0))

    def handle(self, descriptor: int, event: int) -> None:
        """Serve one descriptor that is ready."""
        if descriptor == 0:
            number, size = struct.unpack(">II", self._read_exactly(8))
            data = self._read_exactly(size)
            for connection in self._connections.values():
                if connection.number == number:
                    connection.waits = False
                    connection.outgoing += struct.pack(">I", size) + data
        elif descriptor == self._listener.fileno():
            accepted, _ = self._listener.accept()
            accepted.setblocking(False)
            self._accepted += 1
            self._connections[accepted.fileno()] = Connection(accepted, self._accepted)
        else:
            connection = self._connections[descriptor]
            try:
                if event & select.POLLOUT:
                    del connection.outgoing[: connection.socket.send(connection.outgoing)]
                if event & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    self._receive(descriptor, connection)
            except BlockingIOError:
                pass
            except (OSError, ValueError):
                self._drop(descriptor)

    def close(self) -> None:
        """Close every connection."""
        for descriptor in list(self._connections):
            self._drop(descriptor)
        self._listener.close()

    def _receive(self, descriptor: int, connection: Connection) -> None:
        piece = connection.socket.recv(1 << 16)
        if not piece:
            self._drop(descriptor)
            return
        connection.incoming += piece
        request = connection.take_request(self._cap)
        if request is not None:
            connection.waits = True
            self._send({"call": connection.number}, request)

    def _drop(self, descriptor: int) -> None:
        connection = self._connections.pop(descriptor)
        connection.socket.close()
        self._send({"closed": connection.number}, b"")
