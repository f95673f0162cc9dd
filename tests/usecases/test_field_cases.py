"""Each case of docs/field-cases.md holds, and breaks where it should without its rule."""

from __future__ import annotations

import pytest

from tests.usecases.field_cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_the_case_holds(name: str) -> None:
    CASES[name].tell()


@pytest.mark.parametrize("name", CASES)
def test_the_case_breaks_without_its_rule(name: str) -> None:
    case = CASES[name]
    with case.cut(), pytest.raises(pytest.fail.Exception, match=case.breaks):
        case.tell()
