"""The instance metadata service of a booted machine: runs on the machine itself, as a unit."""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ADDRESS = "169.254.169.254"
SET_ADDRESS, SET_NETMASK = 0x8916, 0x891C
FACTS = {
    "instance-id": "i-0123456789abcdef0",
    "instance-type": "g5.xlarge",
    "instance-life-cycle": "spot",
    "placement/availability-zone": "us-east-1a",
    "placement/region": "us-east-1",
    "events/maintenance/scheduled": "[]",
    "iam/security-credentials/": "host",
    "iam/security-credentials/host": json.dumps(
        {
            "Code": "Success",
            "AccessKeyId": "of-the-host",
            "SecretAccessKey": "of-the-host",
            "Token": "of-the-host",
            "Expiration": "2100-01-01T00:00:00Z",
        }
    ),
}


class Service(BaseHTTPRequestHandler):
    """Version 2: a token first."""

    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        self._answer(200, "token")

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != "token":
            self._answer(401, "")
            return
        fact = FACTS.get(self.path.removeprefix("/latest/meta-data/"))
        self._answer(404 if fact is None else 200, fact or "")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def take_address() -> None:
    """Give the loopback interface the service's address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, address in ((SET_ADDRESS, ADDRESS), (SET_NETMASK, "255.255.255.255")):
            place = struct.pack("16sH2x4s8x", b"lo:1", socket.AF_INET, socket.inet_aton(address))
            fcntl.ioctl(control, request, place)


if __name__ == "__main__":
    take_address()
    sys.stdout.write("serving\n")
    ThreadingHTTPServer((ADDRESS, 80), Service).serve_forever()
