"""
What the checkpoints of common frameworks look like, and whether one is whole.

A framework's name for a finished folder proves nothing: an interrupted save leaves one
without its optimizer or its random state, which most frameworks resume from without a
word. So each profile says where checkpoints lie below the job's output folder, which of
its parts must be there, and how each tells that it is complete. Pickles are read without
running anything in them.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, Self

LARGEST_PICKLE_BYTES = 256 * 2**20
LARGEST_HEADER_BYTES = 100 * 2**20  # safetensors' own limit
STEP = "{step}"
LAST_DIGITS = re.compile(r"(?!.*\.orbax-checkpoint-tmp)(?:.*\D)?(\d{1,12})", re.ASCII)
HF_FOLDER = re.compile(r"checkpoint-(\d{1,12})", re.ASCII)
DCP_SHARD = re.compile(r"__(\d+)_\d+\.distcp", re.ASCII)
DEEPSPEED_FOLDER = re.compile(r"global_step(\d{1,12})", re.ASCII)
DEEPSPEED_FILE = re.compile(
    r"(?:(?:bf16_|fp16_)?zero_pp_rank_(?P<dp>\d+)_)?mp_rank_(?P<mp>\d+)_(?P<what>model|optim)_states\.pt"
)
RNG_STATE = re.compile(r"rng_state_(\d+)\.pth", re.ASCII)


class ProfileError(ValueError):
    """Nobody could watch for such checkpoints; the message says why."""


class WreckError(Exception):
    """The files are no whole checkpoint; the message says why."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """
    Files that may be a checkpoint. Paths are relative to the output folder.

    ``step`` is None where nothing tells it yet: the file that would isn't readable.
    """

    name: str
    step: int | None
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """What is known of a checkpoint found whole; *extra* files join it when it is kept."""

    world_size: int = 1
    extra: Mapping[str, bytes] = field(default_factory=dict)


class Profile(Protocol):
    """How one kind of job lays its checkpoints down."""

    @property
    def name(self) -> str:
        """The name, as it stands in manifests."""

    def candidates(self, output: Path) -> Iterator[Candidate]:
        """Return what may be a checkpoint below *output*."""

    def check(self, root: Path, candidate: Candidate) -> Whole:
        """Look at the candidate's files below *root*; raise ``WreckError``."""


def parse(texts: Sequence[str]) -> Profile | None:
    """Return the profile that a job names, None if it names none; raise ``ProfileError``."""
    if not texts:
        return None
    known = [text for text in texts if text in PROFILES]
    if known:
        if len(texts) > 1:
            raise ProfileError(f"{known[0]} says it all: leave out the rest")
        return PROFILES[known[0]]
    return Patterns(tuple(_pattern(text) for text in texts))


@dataclass(frozen=True, slots=True)
class Folders:
    """Checkpoints that are folders directly below the output folder, named by their step."""

    name: str
    named: re.Pattern[str]
    whole: Callable[[Path, int], Whole]

    def candidates(self, output: Path) -> Iterator[Candidate]:
        """Return the folders of that name."""
        for entry in _entries(output):
            match = self.named.fullmatch(entry.name)
            if match and entry.is_dir(follow_symlinks=False):
                paths = tuple(f"{entry.name}/{path}" for path in _below(Path(entry.path)))
                yield Candidate(entry.name, int(match[1]), paths)

    def check(self, root: Path, candidate: Candidate) -> Whole:
        """Look at the folder; raise ``WreckError``."""
        if candidate.step is None or not candidate.paths:
            raise WreckError("it is empty")
        return self.whole(root / candidate.name, candidate.step)


@dataclass(frozen=True, slots=True)
class Lightning:
    """Checkpoints that are single ``*.ckpt`` files; each holds its own step."""

    name: str = "lightning"

    def candidates(self, output: Path) -> Iterator[Candidate]:
        """Return the files; of two with one step, the one that ``ckpt_path="last"`` finds first."""
        files = {
            entry.name: entry.stat(follow_symlinks=False)
            for entry in _entries(output)
            if entry.name.endswith(".ckpt") and entry.is_file(follow_symlinks=False)
        }
        for name in sorted(files, key=lambda name: (not name.startswith("last"), name)):
            status = files[name]
            mark = (status.st_size, status.st_mtime_ns, status.st_ino)
            yield Candidate(name, _step_inside(str(output / name), mark), (name,))

    def check(self, root: Path, candidate: Candidate) -> Whole:
        """Look at the file; raise ``WreckError``."""
        _archive(root / candidate.name)
        if candidate.step is None:
            raise WreckError(f"{candidate.name} holds no global_step")
        return Whole()


@dataclass(frozen=True, slots=True)
class Pattern:
    """Some files of every checkpoint, each of at least so many bytes."""

    text: str
    named: re.Pattern[str]
    least_bytes: int


@dataclass(frozen=True, slots=True)
class Patterns:
    """Checkpoints of whatever names, given as patterns that hold the step."""

    patterns: tuple[Pattern, ...]
    name: str = "files"

    def candidates(self, output: Path) -> Iterator[Candidate]:
        """Return the files of each step that any pattern finds."""
        found: dict[int, list[str]] = {}
        for path in _below(output):
            if path.startswith("."):
                continue
            matches = (pattern.named.fullmatch(path) for pattern in self.patterns)
            steps = {int(match["step"]) for match in matches if match}
            for step in steps:
                found.setdefault(step, []).append(path)
        for step, paths in found.items():
            yield Candidate(f"step {step}", step, tuple(paths))

    def check(self, root: Path, candidate: Candidate) -> Whole:
        """Compare the files with each pattern; raise ``WreckError``."""
        for pattern in self.patterns:
            found = [path for path in candidate.paths if pattern.named.fullmatch(path)]
            if not found:
                raise WreckError(f"no file is named {pattern.text}")
            for path in found:
                _at_least(root / path, pattern.least_bytes)
        for path in candidate.paths:
            _readable(root / path, archives=("",) if _zipped(root / path) else ())
        return Whole()


def hugging_face(folder: Path, step: int) -> Whole:
    """Check a folder of the HF Trainer; one saved without its optimizer can't be resumed from."""
    state = _json(folder / "trainer_state.json")
    if state.get("global_step") != step:
        raise WreckError(f"trainer_state.json is about step {state.get('global_step')}")
    _json_if_there(folder / "config.json")
    _weights(folder)
    _any(folder, "the optimizer", "optimizer.pt", "optimizer.bin", "optimizer_*", "global_step*")
    _any(folder, "the random state", "rng_state.pth", "rng_state_*.pth")
    _any(folder, "the scheduler", "scheduler.pt", "global_step*")
    for inner in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
        if (inner / ".metadata").exists() or inner.name.startswith("optimizer_"):
            distributed(inner, step)
        elif match := DEEPSPEED_FOLDER.fullmatch(inner.name):
            deepspeed(inner, int(match[1]))
    ranks = [int(m[1]) for path in folder.iterdir() if (m := RNG_STATE.fullmatch(path.name))]
    _without_gaps(ranks, "rng_state_{}.pth")
    for path in _below(folder):
        _readable(folder / path, archives=(".pt", ".pth", ".bin"))
    return Whole(world_size=len(ranks) or 1)


def distributed(folder: Path, _step: int) -> Whole:
    """Check a torch.distributed.checkpoint: its index is written last and names every byte."""
    index = _unpickled(_bytes(folder / ".metadata", LARGEST_PICKLE_BYTES), ".metadata")
    stored = getattr(index, "state", None)
    entries = stored.get("storage_data") if isinstance(stored, dict) else None
    if not isinstance(entries, dict) or not entries:
        raise WreckError(".metadata names no shard")
    ends: dict[str, int] = {}
    for entry in entries.values():
        about: Any = getattr(entry, "state", None)
        try:
            path, end = str(about["relative_path"]), int(about["offset"]) + int(about["length"])
        except (KeyError, TypeError, ValueError):
            raise WreckError(".metadata isn't an index that we know") from None
        ends[path] = max(end, ends.get(path, 0))
    for path, end in sorted(ends.items()):
        if "/" in path:
            raise WreckError(f".metadata names {path}, outside its folder")
        _at_least(folder / path, end)
    writers = {match[1] for path in ends if (match := DCP_SHARD.fullmatch(path))}
    return Whole(world_size=len(writers) or 1)


def orbax(folder: Path, _step: int) -> Whole:
    """Check a step of Orbax: older releases have only the rename and a time in their metadata."""
    if (folder / "commit_success.txt").exists():
        return Whole()
    about = _json_if_there(folder / "_CHECKPOINT_METADATA")
    if about.get("commit_timestamp_nsecs") is None:
        raise WreckError("neither commit_success.txt nor a time of commit: it wasn't finalised")
    return Whole()


def deepspeed(folder: Path, _step: int) -> Whole:
    """
    Check a tag of DeepSpeed: every rank's shards, and no word of ``latest``.

    That file is written in place, so the one restored is ours: it names this tag.
    """
    shards = [m for path in folder.iterdir() if (m := DEEPSPEED_FILE.fullmatch(path.name))]
    models = [m for m in shards if m["what"] == "model"]
    if not models:
        raise WreckError("no *_model_states.pt")
    for path in sorted(folder.glob("*.pt")):
        _archive(path)
    saved = _unpickled_archive(folder / models[0][0])
    facts = saved if isinstance(saved, dict) else {}
    parts = _count(facts.get("mp_world_size"), {int(m["mp"]) for m in models})
    ranks = _count(facts.get("dp_world_size"), {int(m["dp"] or 0) for m in shards})
    for what in ("model", "optim"):
        split = {(int(m["mp"]), int(m["dp"])) for m in shards if m["what"] == what and m["dp"]}
        wanted = {(part, rank) for part in range(parts) for rank in range(ranks)} if split else ()
        for part, rank in sorted(set(wanted) - split):
            raise WreckError(f"the {what} states of rank {rank}, model part {part}, are missing")
    _without_gaps([int(m["mp"]) for m in models], "mp_rank_{:02d}_model_states.pt", of=parts)
    return Whole(world_size=parts * ranks, extra={"latest": folder.name.encode()})


PROFILES: dict[str, Profile] = {
    "hf": Folders("hf", HF_FOLDER, hugging_face),
    "lightning": Lightning(),
    "dcp": Folders("dcp", LAST_DIGITS, distributed),
    "orbax": Folders("orbax", LAST_DIGITS, orbax),
    "deepspeed": Folders("deepspeed", DEEPSPEED_FOLDER, deepspeed),
}


# Parts of a checkpoint ----------------------------------------------------------------------


def _weights(folder: Path) -> None:
    """Check that the model is there, with every shard that its index names."""
    for index in folder.glob("*.index.json"):
        shards = set(map(str, dict(_json(index).get("weight_map", {})).values()))
        for shard in sorted(shards):
            if "/" in shard or not (folder / shard).is_file():
                raise WreckError(f"{index.name} names {shard}, which is missing")
    sharded = any((entry / ".metadata").exists() for entry in folder.glob("pytorch_model_fsdp_*"))
    in_deepspeed = any(folder.glob("global_step*"))
    if not sharded and not in_deepspeed:
        _any(folder, "the model", "*.safetensors", "*model*.bin")


def _any(folder: Path, what: str, *patterns: str) -> None:
    if not any(True for pattern in patterns for _ in folder.glob(pattern)):
        raise WreckError(f"{what} is missing: no {' or '.join(patterns)}")


def _without_gaps(numbers: Sequence[int], named: str, *, of: int = 0) -> None:
    for number in range(max(of, max(numbers, default=-1) + 1)):
        if number not in numbers:
            raise WreckError(f"{named.format(number)} is missing")


def _count(said: object, seen: set[int]) -> int:
    """Return how many ranks there are: as the checkpoint says, or as far as its files reach."""
    return said if isinstance(said, int) and 0 < said < 1_000_000 else max(seen) + 1  # noqa: PLR2004


def _at_least(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except OSError:
        raise WreckError(f"{path.name} is missing") from None
    if found < size:
        raise WreckError(f"{path.name} has {found} bytes of at least {size}")


def _readable(path: Path, *, archives: tuple[str, ...]) -> None:
    """Check what a file's own format can tell of its completeness."""
    if archives and path.name.endswith(archives):
        _archive(path)
    elif path.suffix == ".safetensors":
        _safetensors(path)
    elif path.suffix == ".json":
        _json(path)


def _zipped(path: Path) -> bool:
    return _bytes(path, 2) == b"PK"


def _archive(path: Path) -> None:
    """Check every byte of what ``torch.save`` wrote, which is a zip, by its CRCs."""
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise WreckError(f"{path.name} is cut off or damaged: {error}") from error
    if bad is not None:
        raise WreckError(f"{path.name} is damaged: {bad} doesn't match its CRC")


def _safetensors(path: Path) -> None:
    """Check that the file is as long as its header says."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > LARGEST_HEADER_BYTES:
                raise WreckError(f"{path.name} has no header")
            header = json.loads(file.read(length))
            size = os.fstat(file.fileno()).st_size
        ends = [int(about["data_offsets"][1]) for key, about in header.items() if key[:2] != "__"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise WreckError(f"{path.name} is cut off: its header can't be read") from error
    whole = 8 + length + max(ends, default=0)
    if size != whole:
        raise WreckError(f"{path.name} has {size} bytes of {whole}")


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise WreckError(f"{path.name} is missing") from None
    except (OSError, ValueError) as error:
        raise WreckError(f"{path.name} can't be read: {error}") from error
    return content if isinstance(content, dict) else {}


def _json_if_there(path: Path) -> dict[str, Any]:
    return _json(path) if path.exists() else {}


def _bytes(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except FileNotFoundError:
        raise WreckError(f"{path.name} is missing") from None
    except OSError as error:
        raise WreckError(f"{path.name} can't be read: {error.strerror}") from error


# Pickles, without what they would run ---------------------------------------------------------


class _Inert:
    """Stands for any class or function that a pickle names: takes everything, does nothing."""

    state: object = None

    def __new__(cls, *_arguments: object, **_named: object) -> Self:
        """Make one of anything."""
        return object.__new__(cls)

    def __call__(self, *_arguments: object) -> _Inert:
        """Be a function too."""
        return self

    def __setstate__(self, state: object) -> None:
        self.state = state

    def __setitem__(self, key: object, value: object) -> None:
        """Be filled like a dictionary."""

    def append(self, value: object) -> None:
        """Be filled like a list."""

    def extend(self, values: object) -> None:
        """Be filled like a list."""

    def add(self, value: object) -> None:
        """Be filled like a set."""


class _Reader(pickle._Unpickler):  # noqa: SLF001
    """
    Reads plain values out of a pickle, and no class of it.

    The unpickler written in Python, because the other one believes a memo index of
    four thousand million and takes the memory for it.
    """

    def find_class(self, _module: str, _name: str) -> type[_Inert]:
        """Return what does nothing."""
        return _Inert

    def persistent_load(self, _pid: object) -> None:
        """Leave tensors where they are."""


def _unpickled(body: bytes, name: str) -> object:
    try:
        return _Reader(io.BytesIO(body)).load()
    except Exception as error:  # a damaged pickle may fail in any way
        raise WreckError(f"{name} can't be read: {error}") from error


def _unpickled_archive(path: Path) -> object:
    try:
        with zipfile.ZipFile(path) as archive:
            inside = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
            if archive.getinfo(inside).file_size > LARGEST_PICKLE_BYTES:
                raise WreckError(f"{path.name} has too large an index")
            body = archive.read(inside)
    except StopIteration:
        raise WreckError(f"{path.name} wasn't written by torch.save") from None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        raise WreckError(f"{path.name} is cut off or damaged: {error}") from error
    return _unpickled(body, path.name)


@lru_cache(maxsize=256)
def _step_inside(path: str, _mark: tuple[int, int, int]) -> int | None:
    """Return the step that a Lightning checkpoint says it is, read once per state of the file."""
    try:
        saved = _unpickled_archive(Path(path))
    except WreckError:
        return None
    step = saved.get("global_step") if isinstance(saved, dict) else None
    return step if isinstance(step, int) and step >= 0 else None


# Names ----------------------------------------------------------------------------------------


def _pattern(text: str) -> Pattern:
    """Read ``ckpt-{step}/model.pt:1000``: a path with one step in it, and the least bytes."""
    path, colon, least = text.rpartition(":")
    if not colon or not least.isdigit():
        path, least = text, "1"
    if path.count(STEP) != 1:
        known = ", ".join(PROFILES)
        raise ProfileError(f"{text!r} is neither one of {known} nor a path with one {STEP} in it")
    if path.startswith("/") or ".." in path.split("/"):
        raise ProfileError(f"{text!r} leads out of the output folder")
    before, after = path.split(STEP)
    named = f"{_glob(before)}(?P<step>\\d{{1,12}}){_glob(after)}"
    return Pattern(path, re.compile(named, re.ASCII), int(least))


def _glob(text: str) -> str:
    return "".join({"*": "[^/]*", "?": "[^/]"}.get(letter, re.escape(letter)) for letter in text)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what lies directly in *folder*; a name that begins with a dot isn't finished."""
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return []


def _below(folder: Path) -> list[str]:
    """Return all that isn't a folder below *folder*, in a fixed order."""
    found = []
    for root, _folders, names in os.walk(folder):
        inside = Path(root).relative_to(folder)
        found += [(inside / name).as_posix() for name in names]
    return sorted(found)
