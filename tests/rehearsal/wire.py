"""A wire between a booted machine and an embedded cloud: one port of 127.0.0.1 on either side."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import threading
from dataclasses import dataclass
from typing import Self

NEW_NETWORK = 0x40000000  # CLONE_NEWNET
CHUNK = 65_536


@dataclass
class Wire:
    """What connects to *port* on the machine of *pid* reaches *port* here, until ``cut``."""

    pid: int
    port: int

    def __post_init__(self) -> None:
        self._open: set[socket.socket] = set()
        self._listener = self._listen_inside()
        threading.Thread(target=self._accept, daemon=True).start()

    def _listen_inside(self) -> socket.socket:
        """Make the socket in a thread that enters the machine's network: it stays there."""
        made: list[socket.socket] = []

        def enter() -> None:
            namespace = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(namespace, NEW_NETWORK):
                    return
            finally:
                os.close(namespace)
            made.append(socket.create_server(("127.0.0.1", self.port)))

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert made, "the machine's network can't be entered"
        return made[0]

    def _accept(self) -> None:
        while True:
            try:
                inside, _ = self._listener.accept()
            except OSError:  # cut
                return
            outside = socket.create_connection(("127.0.0.1", self.port))
            self._open |= {inside, outside}
            for source, target in ((inside, outside), (outside, inside)):
                threading.Thread(target=self._carry, args=(source, target), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                target.sendall(data)
        # One side has ended: so has the conversation.
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        for end in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
