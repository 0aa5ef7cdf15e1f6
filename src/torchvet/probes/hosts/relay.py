"""A way to the server of a store that can be cut.

Torch waits for the answer of a stopped server without an end, and in C++, where no exception reaches it. A thread that
is left there takes the process with it (SIGABRT) if the answer comes while the interpreter ends. So a client of its own
speaks to the server over this process: once the way is cut, its call raises, and the thread ends.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from torchvet.probes.hosts.exchange import CONNECT, Store

_LOOPBACK = "127.0.0.1"
_PIECE, _TICK = 1 << 16, 0.02


class Relay:
    """Connects one client in this process with the server at an address. Raises OSError where that is not there.

    A context manager: the way is cut at its end.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = socket.create_connection((host, port), CONNECT)
        try:
            self._listening = socket.create_server((_LOOPBACK, 0), backlog=1)
        except OSError:
            self._server.close()
            raise

    def client(self) -> Store:
        """A client of the store at the other end; while `pass_on` runs on another thread."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        port, seconds = self._listening.getsockname()[1], timedelta(seconds=CONNECT)
        # The launcher counts its own clients.
        return TCPStore(_LOOPBACK, port, is_master=False, timeout=seconds, wait_for_workers=False)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *error: object) -> None:
        for one in (self._server, self._listening):
            one.close()

    def pass_on(self, over: Callable[[], bool], until: float) -> None:
        """Pass on what both say until it is over, or the moment `until` (of the monotonic clock)."""
        self._listening.settimeout(_TICK)
        while not over() and time.monotonic() < until:
            with suppress(TimeoutError):
                client, _ = self._listening.accept()
                # It tries again where the server is gone.
                self._listening.close()
                with client, suppress(OSError):
                    self._between(client, over, until)
                return

    def _between(self, client: socket.socket, over: Callable[[], bool], until: float) -> None:
        """Until one of them closes its end, too."""
        ends = _End(client), _End(self._server)
        with selectors.DefaultSelector() as selector:
            for end, other in (ends, ends[::-1]):
                selector.register(end.socket, selectors.EVENT_READ, (end, other))
            while not over() and time.monotonic() < until:
                for end, other in (ends, ends[::-1]):
                    selector.modify(end.socket, end.events, (end, other))
                for key, events in selector.select(_TICK):
                    end, other = key.data
                    if events & selectors.EVENT_WRITE:
                        end.send()
                    if events & selectors.EVENT_READ and not end.receive(other):
                        other.send()
                        return


class _End:
    """One of two sockets, and what it has not been sent yet."""

    def __init__(self, one: socket.socket) -> None:
        self.socket = one
        self._unsent = bytearray()
        one.setblocking(False)

    @property
    def events(self) -> int:
        """What it can be waited for."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def send(self) -> None:
        """Send what it takes now."""
        del self._unsent[: self.socket.send(self._unsent)]

    def receive(self, other: _End) -> bool:
        """Take for the other what it says. Whether it goes on."""
        said = self.socket.recv(_PIECE)
        other._unsent += said
        return bool(said)
