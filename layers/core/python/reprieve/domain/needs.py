"""What a job asks of a host, as far as that can be judged before one is launched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Needs:
    """
    The least that a host must have; the defaults ask for nothing.

    ``gpu_memory_mib`` is what the job uses of one GPU at its peak, as measured, never a
    card's label. ``capabilities`` are those the job's code was compiled for, by NVIDIA's
    rule: ``8.0`` runs on every 8.x from there on, ``8.0+`` (it carries PTX) on later
    generations too. ``precision`` is bf16, fp8 or nothing special. ``exact`` holds a job to
    *gpu_model* and exactly *gpus*, because its results depend on them.
    """

    gpus: int = 0
    gpu_memory_mib: int = 0
    gpu_model: str = ""
    capabilities: tuple[str, ...] = ()
    precision: str = ""
    nvlink: bool = False
    host_memory_gib: int = 0
    exact: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return what is asked, and nothing else."""
        return {name: value for name, value in asdict(self).items() if value}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Needs:
        """Read what ``to_dict`` wrote; raise ``TypeError`` for a value of another kind."""
        if not isinstance(raw, Mapping):
            message = "needs must be an object"
            raise TypeError(message)
        plain = asdict(cls())
        known = {name: value for name, value in raw.items() if name in plain}
        for name, value in known.items():
            kind = list if name == "capabilities" else type(plain[name])
            if type(value) is not kind and not (kind is list and type(value) is tuple):
                message = f"needs.{name} can't be {value!r:.40}"
                raise TypeError(message)
        if "capabilities" in known:
            known["capabilities"] = tuple(str(entry) for entry in known["capabilities"])
        return cls(**known)

    def __bool__(self) -> bool:
        """Whether anything is asked at all."""
        return self != NOTHING

    def __str__(self) -> str:
        """Return the needs in the words of the command line."""
        parts = [
            f"{self.gpus or 1} {self.gpu_model or 'GPU'}{'s' if self.gpus > 1 else ''}",
            f"{self.gpu_memory_mib / 1024:g} GiB used of each" if self.gpu_memory_mib else "",
            f"compute capability {' or '.join(self.capabilities)}" if self.capabilities else "",
            self.precision,
            "NVLink" if self.nvlink else "",
            f"{self.host_memory_gib} GiB of memory" if self.host_memory_gib else "",
            "exactly" if self.exact else "",
        ]
        return ", ".join(part for part in parts if part) if self else "any host of the pool"


NOTHING = Needs()
