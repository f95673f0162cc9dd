"""
The files of the job contract as types: docs/job-contract.schema.json is what they come to.

``python tests/agent/contract_files.py`` writes it anew. A reader ignores what it doesn't know,
so the schemas allow more than they name.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema, models_json_schema

SCHEMA = Path(__file__).parents[2] / "docs" / "job-contract.schema.json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

Count = Annotated[int, Field(ge=0)]
Step = Annotated[int, Field(ge=0, le=999_999_999_999, description="Complete steps.")]
Moment = Annotated[float, Field(description="Seconds since 1970, UTC.")]


class File(BaseModel):
    """One JSON object in the run directory, or in a checkpoint's folder."""

    model_config = ConfigDict(extra="ignore", strict=True, use_enum_values=True, frozen=True)

    v: Literal[1]


class Request(File):
    """request.json, by the host: what the job is asked for."""

    id: Annotated[str, Field(min_length=1, description="A new one is a new request.")]
    kind: Literal["checkpoint", "checkpoint_exit"]
    reason: str
    deadline_unix: Moment | None
    deadline_boottime_ns: Count | None
    save_by_unix: Moment | None


class Hook(StrEnum):
    """How a process hears of a request."""

    SIGNAL = "signal"
    POLL = "poll"


class Ready(File):
    """ready.<rank>.json, by each process that trains: only these are ever signalled."""

    pid: Annotated[int, Field(ge=1)]
    start_ticks: Annotated[
        Count | None, Field(description="Field 22 of /proc/<pid>/stat; null: can't be woken.")
    ]
    rank: Count
    hook: Hook


class Answer(StrEnum):
    """What a job says about a request."""

    SAVING = "saving"
    SAVED = "saved"
    DECLINED = "declined"
    FAILED = "failed"


class Ack(File):
    """ack.<rank>.json, by the job: its answer to a request."""

    request_id: str
    state: Answer
    step: Step | None
    path: Annotated[str | None, Field(description="The finished folder, absolute.")]
    error: str | None


class Progress(File):
    """progress.json, by rank 0: how far training is. It proves nothing saved."""

    step: Step
    total: Step | None
    at_unix: Moment


class Done(File):
    """done.json, by rank 0: the proof of completion."""

    step: Step


class ManifestFile(BaseModel):
    """One file of a checkpoint."""

    model_config = File.model_config

    path: Annotated[str, Field(min_length=1, description="Relative, with / between its parts.")]
    size: Count
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | SkipJsonSchema[None] = Field(
        default=None, description="May be missing from a save under checkpoint_exit."
    )


class Manifest(File):
    """MANIFEST.json, written last into a checkpoint's folder."""

    step: Step
    attempt: Count
    world_size: Annotated[int, Field(ge=1)]
    framework: str
    seconds: Annotated[float | None, Field(ge=0, description="How long the save took.")] = None
    files: Annotated[list[ManifestFile], Field(min_length=1)]


FILES: dict[str, type[File]] = {
    "request.json": Request,
    "ready.<rank>.json": Ready,
    "ack.<rank>.json": Ack,
    "progress.json": Progress,
    "done.json": Done,
    "MANIFEST.json": Manifest,
}


def schema() -> dict[str, Any]:
    """Return the schemas of all files, by the names of ``FILES``."""
    _, shared = models_json_schema([(model, "validation") for model in FILES.values()])
    return {
        "$schema": DIALECT,
        "title": "Files of the job contract, version 1",
        "description": "docs/job-contract.md says what they mean.",
        "properties": {
            name: {"$ref": f"#/$defs/{model.__name__}"} for name, model in FILES.items()
        },
        "$defs": shared["$defs"],
    }


def text() -> str:
    """Return the committed file's content."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text())
