"""Room for one more save: what is deleted before a job is asked, and what never is."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprieve_agent import room

SAVE_BYTES = 1000


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    for step in (10, 20, 30, 40):
        (tmp_path / f"step-{step}").mkdir()
    return tmp_path


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_with_room_for_the_next_save_nothing_is_deleted(checkpoints: Path) -> None:
    room.make(checkpoints, committed=30, last_bytes=SAVE_BYTES, free=lambda _: 1300)

    assert left(checkpoints) == ["step-10", "step-20", "step-30", "step-40"]


def test_without_it_only_the_newest_commit_stays_and_what_isnt_committed(
    checkpoints: Path,
) -> None:
    room.make(checkpoints, committed=30, last_bytes=SAVE_BYTES, free=lambda _: 1299)

    assert left(checkpoints) == ["step-30", "step-40"]


@pytest.mark.parametrize(("committed", "last_bytes"), [(None, SAVE_BYTES), (None, None)])
def test_what_is_in_no_bucket_is_never_deleted(
    committed: int | None, last_bytes: int | None, checkpoints: Path
) -> None:
    room.make(checkpoints, committed=committed, last_bytes=last_bytes, free=lambda _: 0)

    assert left(checkpoints) == ["step-10", "step-20", "step-30", "step-40"]


def test_a_disk_that_stays_short_is_said_once_and_the_job_is_asked_all_the_same(
    checkpoints: Path, caplog: pytest.LogCaptureFixture
) -> None:
    room.make(checkpoints, committed=40, last_bytes=SAVE_BYTES, free=lambda _: 10)

    assert [record.getMessage() for record in caplog.records] == ["disk is short"]
    assert left(checkpoints) == ["step-40"]
