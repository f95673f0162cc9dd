"""
Errors by exit status: each carries the one line that the person at the terminal reads.

CliError
├── AnswerIsNoError        1  it was asked and the answer is no, with the reason
├── BadInputError          2  ask differently
└── CloudUnreachableError  3  nothing could be asked
"""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses; scripts rely on them."""

    YES = 0
    NO = 1
    BAD_INPUT = 2
    UNREACHABLE = 3
    INTERRUPTED = 130  # 128 + SIGINT, as shells say it


class CliError(Exception):
    """Base of what a command ends with instead of its answer."""

    exit_code = Exit.NO


class AnswerIsNoError(CliError):
    """The cloud was asked, and it is no."""


class BadInputError(CliError):
    """What was asked can't be: a wrong value, a missing folder, no such pool."""

    exit_code = Exit.BAD_INPUT


class CloudUnreachableError(CliError):
    """No credentials, no network, no embedded cloud: nothing was learnt or changed."""

    exit_code = Exit.UNREACHABLE
