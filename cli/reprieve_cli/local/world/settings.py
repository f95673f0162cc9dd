"""What the launcher tells the world: one JSON file in the run directory."""

from __future__ import annotations

import json
import ssl
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FILE = "world.json"


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files."""

    authority: str
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Settings:
    run_dir: Path
    endpoint: str
    """Where SDK calls go: the world's own address."""
    metadata: str
    """Where metadata and control requests go: always plain HTTP."""
    sockets: list[int]
    """Descriptors of the bound sockets: SDK calls first, then, under TLS, metadata."""
    leash: int | None
    """Descriptor of a pipe that ends when the launcher does; None: nobody holds us."""
    notice_seconds: float
    region: str
    account: str
    python: str
    ministack_python: str
    agent_module: str
    market: dict[str, Any] | None = None
    auth: bool = False
    tls: Tls | None = None
    agent_environment: dict[str, str] = field(default_factory=dict)

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    def client_tls(self) -> ssl.SSLContext | bool:
        """Trust our own authority, for requests to ministack."""
        if self.tls is None:
            return True
        return ssl.create_default_context(cafile=self.tls.authority)

    def server_tls(self) -> ssl.SSLContext | None:
        if self.tls is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.tls.certificate, self.tls.key)
        return context

    def own_environment(self) -> dict[str, str]:
        """Give what any process of ours needs, and nothing of the user's."""
        return {
            "PATH": f"{Path(self.python).parent}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
        }

    def save(self) -> Path:
        """Write the file and return its path."""
        path = self.run_dir / FILE
        path.write_text(json.dumps(asdict(self), default=str, indent=1), encoding="utf-8")
        return path


def load(path: Path) -> Settings:
    data = json.loads(path.read_text(encoding="utf-8"))
    tls = data.pop("tls")
    run_dir = Path(data.pop("run_dir"))
    return Settings(run_dir=run_dir, tls=Tls(**tls) if tls else None, **data)
