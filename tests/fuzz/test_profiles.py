"""Whatever lies in a job's output folder, and however it is spoilt: a verdict, and no surprise."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_agent.profiles import PROFILES, WreckError
from tests.agent.test_profiles import MAKERS
from tests.fuzz.strategies import FUZZ

# Where a file is cut, and which byte becomes what.
spoilt = st.tuples(st.floats(0, 1), st.floats(0, 1), st.integers(0, 255))


@pytest.mark.parametrize("name", sorted(MAKERS))
@FUZZ
@given(which=st.floats(0, 1), how=spoilt, body=st.none() | st.binary(max_size=200))
def test_a_spoilt_file_is_judged_and_never_raises_anything_else(
    name: str, which: float, how: tuple[float, float, int], body: bytes | None
) -> None:
    profile = PROFILES[name]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder)
        MAKERS[name](output)
        files = sorted(path for path in output.rglob("*") if path.is_file())
        victim = files[min(int(which * len(files)), len(files) - 1)]
        victim.write_bytes(_spoil(victim.read_bytes(), *how) if body is None else body)

        for candidate in profile.candidates(output):
            with suppress(WreckError):
                profile.check(output, candidate)


def _spoil(body: bytes, end: float, place: float, value: int) -> bytes:
    cut = bytearray(body[: round(len(body) * (0.5 + end / 2))])
    if cut:
        cut[min(int(place * len(cut)), len(cut) - 1)] = value
    return bytes(cut)
