"""What frameworks leave on disk, whole and in pieces: every piece that matters is missed."""

from __future__ import annotations

import json
import pickle
import struct
import sys
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reprieve_agent.profiles import (
    PROFILES,
    Candidate,
    Profile,
    ProfileError,
    Whole,
    WreckError,
    parse,
)

Damage = Callable[[Path], object]


def torch_save(path: Path, content: object) -> None:
    """Write what ``torch.save`` writes, as far as its container goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{path.stem}/data.pkl", pickle.dumps(content, protocol=2))
        archive.writestr(f"{path.stem}/data/0", bytes(range(256)) * 4)
        archive.writestr(f"{path.stem}/version", "3\n")


def safetensors(path: Path) -> None:
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "w": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [32, 40]},
        }
    ).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(40))


def hf(output: Path, step: int = 500) -> Path:
    folder = output / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    safetensors(folder / "model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        torch_save(folder / name, {"state": [1, 2, 3]})
    (folder / "config.json").write_text('{"model_type": "tiny"}')
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "epoch": 1.5}))
    return folder


def lightning(output: Path, name: str = "epoch=0-step=500.ckpt", step: int = 500) -> Path:
    torch_save(output / name, {"epoch": 0, "global_step": step, "state_dict": {}})
    return output


def dcp(output: Path, step: int = 500) -> Path:
    folder = output / f"step_{step}"
    folder.mkdir(parents=True)
    for rank in range(2):
        (folder / f"__{rank}_0.distcp").write_bytes(bytes(300))
    (folder / ".metadata").write_bytes(dcp_index({"__0_0.distcp": 300, "__1_0.distcp": 300}))
    return folder


def dcp_index(ends: dict[str, int]) -> bytes:
    """Return an index as torch pickles it: instances of classes that aren't there to read it."""
    module = types.ModuleType("torch_like_metadata")
    sys.modules[module.__name__] = module
    try:
        made = {}
        for name in ("Metadata", "MetadataIndex", "_StorageInfo"):
            made[name] = type(name, (), {"__module__": module.__name__})
            setattr(module, name, made[name])

        def an(name: str, **state: Any) -> Any:
            instance = made[name]()
            instance.__dict__.update(state)
            return instance

        storage = {}
        for path, end in ends.items():
            for offset in (0, end // 2):
                info = an("_StorageInfo", relative_path=path, offset=offset, length=end - end // 2)
                storage[an("MetadataIndex", fqn=f"{path}.{offset}")] = info
        return pickle.dumps(an("Metadata", state_dict_metadata={}, storage_data=storage))
    finally:
        del sys.modules[module.__name__]


def orbax(output: Path, step: int = 500) -> Path:
    folder = output / str(step)
    (folder / "default").mkdir(parents=True)
    (folder / "default" / "manifest.ocdbt").write_bytes(bytes(100))
    (folder / "_CHECKPOINT_METADATA").write_text('{"commit_timestamp_nsecs": 1}')
    (folder / "commit_success.txt").write_text("Checkpoint commit was successful")
    return folder


def deepspeed(output: Path, step: int = 500) -> Path:
    folder = output / f"global_step{step}"
    state = {"module": {}, "dp_world_size": 2, "mp_world_size": 1}
    torch_save(folder / "mp_rank_00_model_states.pt", state)
    for rank in range(2):
        torch_save(folder / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", {})
    (output / "latest").write_text("global_step400")  # written in place: it may be stale
    return folder


MAKERS: dict[str, Callable[[Path], Path]] = {
    "hf": hf,
    "lightning": lightning,
    "dcp": dcp,
    "orbax": orbax,
    "deepspeed": deepspeed,
}


def look(profile: Profile, output: Path) -> list[tuple[int | None, Whole | str]]:
    """Return what is found, and why not."""

    def verdict(candidate: Candidate) -> Whole | str:
        try:
            return profile.check(output, candidate)
        except WreckError as error:
            return str(error)

    return [(found.step, verdict(found)) for found in profile.candidates(output)]


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("hf", Whole()),
        ("lightning", Whole()),
        ("dcp", Whole(world_size=2)),
        ("orbax", Whole()),
        ("deepspeed", Whole(world_size=2, extra={"latest": b"global_step500"})),
    ],
)
def test_what_a_framework_finished_is_whole(tmp_path: Path, name: str, whole: Whole) -> None:
    MAKERS[name](tmp_path)

    assert look(PROFILES[name], tmp_path) == [(500, whole)]


def gone(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def cut(name: str) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_bytes(path.read_bytes()[:-20])

    return damage


def flipped(name: str) -> Damage:
    def damage(folder: Path) -> None:
        body = bytearray((folder / name).read_bytes())
        body[body.index(bytes(range(256)))] ^= 1
        (folder / name).write_bytes(body)

    return damage


def written(name: str, content: str) -> Damage:
    return lambda folder: (folder / name).write_text(content)


def saved(name: str, content: object = None) -> Damage:
    return lambda folder: torch_save(folder / name, content)


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        # Fault 9: the HF Trainer resumes from these without a word, as another run.
        ("hf", gone("optimizer.pt"), "the optimizer is missing"),
        ("hf", gone("rng_state.pth"), "the random state is missing"),
        ("hf", gone("scheduler.pt"), "the scheduler is missing"),
        # Fault 8: what a full disk leaves; every later resume crashes on it.
        ("hf", gone("trainer_state.json"), "trainer_state.json is missing"),
        ("hf", written("trainer_state.json", '{"global_step": 500'), "can't be read"),
        ("hf", written("trainer_state.json", '{"global_step": 400}'), "is about step 400"),
        ("hf", written("config.json", "{"), "config.json can't be read"),
        ("hf", gone("model.safetensors"), "the model is missing"),
        ("hf", cut("model.safetensors"), "model.safetensors has"),
        ("hf", written("model.safetensors", ""), "model.safetensors is cut off"),
        ("hf", cut("optimizer.pt"), "optimizer.pt is cut off or damaged"),
        ("hf", flipped("optimizer.pt"), "optimizer.pt is damaged"),
        ("hf", written("model.safetensors.index.json", '{"weight_map": {"w": "m-2.safetensors"}}'),
         "names m-2.safetensors, which is missing"),
        ("hf", saved("rng_state_2.pth"), "rng_state_0.pth is missing"),
        ("lightning", cut("epoch=0-step=500.ckpt"), "is cut off or damaged"),
        ("lightning", flipped("epoch=0-step=500.ckpt"), "is damaged"),
        ("lightning", saved("epoch=0-step=500.ckpt", {"epoch": 0}), "holds no global_step"),
        ("dcp", gone(".metadata"), ".metadata is missing"),
        ("dcp", cut(".metadata"), ".metadata can't be read"),
        ("dcp", gone("__1_0.distcp"), "__1_0.distcp is missing"),
        ("dcp", cut("__1_0.distcp"), "__1_0.distcp has 280 bytes of at least 300"),
        ("deepspeed", gone("mp_rank_00_model_states.pt"), "no *_model_states.pt"),
        ("deepspeed", gone("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
         "the optim states of rank 1, model part 0, are missing"),
        ("deepspeed", cut("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"), "is cut off"),
    ],
)  # fmt: skip
def test_fault_9_wreckage_is_refused_with_its_reason(
    tmp_path: Path, name: str, damage: Damage, reason: str
) -> None:
    damage(MAKERS[name](tmp_path))

    ((_step, said),) = look(PROFILES[name], tmp_path)
    assert reason in str(said)


def test_a_step_of_orbax_counts_from_its_commit_on(tmp_path: Path) -> None:
    folder = orbax(tmp_path)

    (folder / "commit_success.txt").unlink()  # older releases rename, and note the time
    assert look(PROFILES["orbax"], tmp_path) == [(500, Whole())]
    (folder / "_CHECKPOINT_METADATA").write_text('{"commit_timestamp_nsecs": null}')

    ((_step, said),) = look(PROFILES["orbax"], tmp_path)
    assert "wasn't finalised" in str(said)


@pytest.mark.parametrize(
    ("name", "unfinished"),
    [
        # Fault 10: names that say themselves that they aren't finished.
        ("orbax", "500.orbax-checkpoint-tmp-17"),
        ("dcp", ".step-500.part"),
        ("hf", "tmp-checkpoint-500"),
        ("deepspeed", "global_step"),
    ],
)
def test_fault_10_unfinished_names_are_not_looked_at(
    tmp_path: Path, name: str, unfinished: str
) -> None:
    MAKERS[name](tmp_path).rename(tmp_path / unfinished)

    assert look(PROFILES[name], tmp_path) == []


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    for profile in PROFILES.values():
        assert list(profile.candidates(tmp_path / "missing")) == []


def test_ranks_are_counted_by_their_random_states(tmp_path: Path) -> None:
    folder = hf(tmp_path)
    (folder / "rng_state.pth").unlink()
    for rank in range(3):
        torch_save(folder / f"rng_state_{rank}.pth", {})

    assert look(PROFILES["hf"], tmp_path) == [(500, Whole(world_size=3))]


def test_a_lightning_file_of_any_name_is_known_by_the_step_inside(tmp_path: Path) -> None:
    lightning(tmp_path, "epoch=0-step=500.ckpt", 500)
    lightning(tmp_path, "last.ckpt", 500)
    lightning(tmp_path, "best.ckpt", 300)

    found = [(c.name, c.step) for c in PROFILES["lightning"].candidates(tmp_path)]

    # Of the two with step 500 the one that `ckpt_path="last"` will look for comes first.
    assert found == [("last.ckpt", 500), ("best.ckpt", 300), ("epoch=0-step=500.ckpt", 500)]


def test_a_pickle_runs_nothing(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
            return (Path.touch, (tmp_path / "exploded",))

    torch_save(tmp_path / "x.ckpt", {"global_step": 7, "bomb": Bomb()})

    assert [c.step for c in PROFILES["lightning"].candidates(tmp_path)] == [7]
    assert not (tmp_path / "exploded").exists()


def test_a_pickle_that_names_a_huge_memo_costs_nothing(tmp_path: Path) -> None:
    folder = dcp(tmp_path)
    memo = pickle.LONG_BINPUT + b"\xff\xff\xff\x7f"
    (folder / ".metadata").write_bytes(pickle.PROTO + b"\x02" + pickle.NONE + memo + pickle.STOP)

    ((_step, said),) = look(PROFILES["dcp"], tmp_path)
    assert said == ".metadata names no shard"


# A job's own names -----------------------------------------------------------------------


def test_patterns_find_the_files_of_each_step(tmp_path: Path) -> None:
    profile = parse(("ckpt-{step}/*.bin:100", "ckpt-{step}/meta.json"))
    assert profile
    for step in (10, 20):
        folder = tmp_path / f"ckpt-{step}"
        folder.mkdir()
        (folder / "model.bin").write_bytes(bytes(100))
        (folder / "meta.json").write_text("{}")
    (tmp_path / "ckpt-20" / "notes.txt").write_text("not asked for")

    found = sorted(profile.candidates(tmp_path), key=lambda candidate: candidate.step or 0)

    assert [c.paths for c in found] == [
        ("ckpt-10/meta.json", "ckpt-10/model.bin"),
        ("ckpt-20/meta.json", "ckpt-20/model.bin"),
    ]
    assert [profile.check(tmp_path, c) for c in found] == [Whole(), Whole()]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (gone("meta.json"), "no file is named ckpt-{step}/meta.json"),
        (written("model.bin", "short"), "model.bin has 5 bytes of at least 100"),
        (written("meta.json", "{"), "meta.json can't be read"),
        (lambda folder: (saved("model.bin")(folder), cut("model.bin")(folder)), "is cut off"),
    ],
)
def test_what_misses_a_pattern_is_refused(tmp_path: Path, damage: Damage, reason: str) -> None:
    profile = parse(("ckpt-{step}/*.bin:100", "ckpt-{step}/meta.json"))
    assert profile
    folder = tmp_path / "ckpt-10"
    folder.mkdir()
    (folder / "model.bin").write_bytes(bytes(100))
    (folder / "meta.json").write_text("{}")

    damage(folder)

    ((_step, said),) = look(profile, tmp_path)
    assert reason in str(said)


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (("keras",), "neither one of hf, lightning, dcp, orbax, deepspeed nor a path"),
        (("{step}/{step}.pt",), "a path with one {step} in it"),
        (("../{step}.pt",), "leads out of"),
        (("/tmp/{step}.pt",), "leads out of"),
        (("hf", "x-{step}"), "hf says it all"),
    ],
)
def test_a_profile_that_nobody_could_use_is_refused(texts: tuple[str, ...], why: str) -> None:
    with pytest.raises(ProfileError) as caught:
        parse(texts)

    assert why in str(caught.value)


def test_no_profile_is_none() -> None:
    assert parse(()) is None
