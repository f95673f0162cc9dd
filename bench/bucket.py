"""
A bucket for the benches: S3's answers over TLS, in a process of its own, without a disk.

Bytes that are sent are counted and forgotten, but for small objects, which can be read
again. One file can be served, in ranges too. So what a bench measures of its own process
is the client's share alone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import trustme

SMALL = 1 << 20
RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Bucket:
    """How to reach it, and what it was sent."""

    endpoint: str
    authority: Path
    control: Connection

    def received(self) -> dict[str, int]:
        """Return the body bytes received since the last call, by method."""
        self.control.send("received")
        counted: dict[str, int] = self.control.recv()
        return counted


@contextlib.contextmanager
def serving(folder: Path, served: Path | None = None) -> Iterator[Bucket]:
    """Run the bucket; every key below ``served/`` reads as the file *served*."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    pem = folder / "authority.pem"
    authority.cert_pem.write_to_path(pem)
    chain = folder / "server.pem"
    for blob in (certificate.private_key_pem, *certificate.cert_chain_pems):
        blob.write_to_path(chain, append=True)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, chain, served), daemon=True)
    process.start()
    port = ours.recv()
    try:
        yield Bucket(f"https://127.0.0.1:{port}", pem, ours)
    finally:
        ours.send("end")
        process.join(10)


@dataclass(slots=True)
class _State:
    served: Path | None
    counted: dict[str, int] = field(default_factory=dict)
    small: dict[str, bytes] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, method: str, size: int) -> None:
        with self.lock:
            self.counted[method] = self.counted.get(method, 0) + size


def _serve(control: Connection, chain: Path, served: Path | None) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(chain)
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    state = _State(served)
    threading.Thread(target=_accept, args=(listener, tls, state), daemon=True).start()
    control.send(listener.getsockname()[1])
    while control.recv() != "end":
        with state.lock:
            counted, state.counted = state.counted, {}
        control.send(counted)


def _accept(listener: socket.socket, tls: ssl.SSLContext, state: _State) -> None:
    while True:
        raw, _ = listener.accept()
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_talk, args=(raw, tls, state), daemon=True).start()


class _Reader:
    """Reads from a socket by lines and by counts; what is only counted is never kept."""

    def __init__(self, peer: ssl.SSLSocket) -> None:
        self._peer = peer
        self._rest = b""
        self._buffer = memoryview(bytearray(SMALL))

    def until(self, mark: bytes) -> bytes:
        while mark not in self._rest:
            more = self._peer.recv(65536)
            if not more:
                raise OSError
            self._rest += more
        head, self._rest = self._rest.split(mark, 1)
        return head

    def body(self, size: int, kept: list[bytes] | None) -> None:
        early, self._rest = self._rest[:size], self._rest[size:]
        if kept is not None:
            kept.append(early)
        left = size - len(early)
        while left:
            got = self._peer.recv_into(self._buffer, min(left, SMALL))
            if not got:
                raise OSError
            left -= got
            if kept is not None:
                kept.append(bytes(self._buffer[:got]))


def _talk(raw: socket.socket, tls: ssl.SSLContext, state: _State) -> None:
    with contextlib.suppress(OSError), tls.wrap_socket(raw, server_side=True) as peer:
        reader = _Reader(peer)
        while True:
            _answer(peer, reader.until(b"\r\n\r\n").decode("latin-1"), reader, state)


def _answer(peer: ssl.SSLSocket, head: str, reader: _Reader, state: _State) -> None:
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    if headers.get("expect"):
        peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    path, _, query = target.partition("?")
    size = int(headers.get("content-length", "0"))
    kept: list[bytes] | None = [] if size < SMALL and "partNumber" not in query else None
    if headers.get("transfer-encoding") == "chunked":
        while chunk := int(reader.until(b"\r\n"), 16):
            reader.body(chunk, None)
            reader.until(b"\r\n")
            size += chunk
        reader.until(b"\r\n")
    else:
        reader.body(size, kept)
    state.count(method, size)
    if method == "PUT" and kept:
        state.small[path] = b"".join(kept)
    if method in {"GET", "HEAD"}:
        _give(peer, method, path, headers, state)
    else:
        _acknowledge(peer, method, query, path)


def _acknowledge(peer: ssl.SSLSocket, method: str, query: str, path: str) -> None:
    body = b""
    if method == "POST" and "uploadId" not in query:
        body = (
            f"<InitiateMultipartUploadResult><Key>{path}</Key><UploadId>u</UploadId>"
            "</InitiateMultipartUploadResult>"
        ).encode()
    elif method == "POST":
        body = b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
    peer.sendall(
        b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Type: application/xml\r\n'
        + f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


def _give(
    peer: ssl.SSLSocket, method: str, path: str, headers: dict[str, str], state: _State
) -> None:
    if path in state.small:
        body = state.small[path]
        peer.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode())
        peer.sendall(body if method == "GET" else b"")
        return
    if state.served is None or "/served/" not in path:
        said = b"<Error><Code>NoSuchKey</Code></Error>"
        head = f"HTTP/1.1 404 Not Found\r\nContent-Length: {len(said)}\r\n\r\n".encode()
        peer.sendall(head + (said if method == "GET" else b""))
        return
    whole = state.served.stat().st_size
    match = RANGE.fullmatch(headers.get("range", ""))
    start, end = (int(match[1]), min(int(match[2]), whole - 1)) if match else (0, whole - 1)
    status = (
        f"206 Partial Content\r\nContent-Range: bytes {start}-{end}/{whole}" if match else "200 OK"
    )
    peer.sendall(
        f'HTTP/1.1 {status}\r\nETag: "e"\r\nContent-Length: {end - start + 1}\r\n\r\n'.encode()
    )
    if method == "HEAD":
        return
    with state.served.open("rb", buffering=0) as file:
        file.seek(start)
        left = end - start + 1
        while left:
            chunk = file.read(min(left, SMALL))
            peer.sendall(chunk)
            left -= len(chunk)
