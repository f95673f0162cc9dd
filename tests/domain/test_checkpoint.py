"""Order is numeric; a manifest that isn't what its key says is no checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.domain.checkpoint import Manifest, Measured, manifest_key, own_manifests, step_of
from reprieve.domain.errors import MalformedError
from tests.builders import a_manifest


@given(st.lists(st.integers(0, 10**12 - 1), unique=True))
def test_the_newest_manifest_is_the_one_with_the_highest_number(steps: list[int]) -> None:
    keys = [manifest_key("job-1", 2, step) for step in steps]
    assert own_manifests(keys, 2) == [
        manifest_key("job-1", 2, step) for step in sorted(steps, reverse=True)
    ]


def test_odd_siblings_and_other_attempts_are_never_chosen() -> None:
    keys = [
        "jobs/job-1/manifests/000001-000000001000-tmp.json",
        "jobs/job-1/manifests/handpicked.json",
        manifest_key("job-1", 1, 1000),
        manifest_key("job-1", 2, 900),
    ]
    assert own_manifests(keys, 2) == [keys[3]]
    assert step_of(keys[0]) is None


@pytest.mark.parametrize(
    "figures",
    [
        "fast",
        {},
        {"host": 1},
        {"host": "g5.xlarge", "size": "much"},
        {"host": "g5.xlarge", "bytes_per_second": 0},
    ],
)
def test_figures_that_cant_be_read_spoil_no_checkpoint(figures: object) -> None:
    manifest = replace(a_manifest(), measured=Measured("g5.xlarge", 2.0, 700.0, 350.0, 0.5))
    said = json.loads(manifest.to_json()) | {"measured": figures}

    read = Manifest.from_json(json.dumps(said).encode(), key=manifest.key)

    assert read == replace(manifest, measured=None)
    assert Manifest.from_json(manifest.to_json(), key=manifest.key) == manifest


def test_a_manifest_comes_back_as_it_was_written() -> None:
    manifest = a_manifest()
    assert Manifest.from_json(manifest.to_json(), key=manifest.key) == manifest


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", "a/../../b"], ids=["parent", "absolute", "inside"]
)
def test_a_manifest_may_not_name_files_outside_its_folder(path: str) -> None:
    good = a_manifest()
    bad = replace(good, files=(replace(good.files[0], path=path),))
    with pytest.raises(MalformedError, match="unusable file"):
        Manifest.from_json(bad.to_json(), key=bad.key)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b'{"v":1,"job":"j"}'])
def test_what_is_no_manifest_is_refused_in_one_line(body: bytes) -> None:
    with pytest.raises(MalformedError, match="isn't a manifest"):
        Manifest.from_json(body, key="jobs/j/manifests/000001-000000000001.json")


def test_a_manifest_under_another_name_is_refused() -> None:
    manifest = a_manifest(step=400)
    with pytest.raises(MalformedError, match="holds the manifest of"):
        Manifest.from_json(manifest.to_json(), key=manifest_key("job-1", 1, 500))
