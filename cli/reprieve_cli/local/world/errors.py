"""An error as AWS would return it."""

from __future__ import annotations


class AwsError(Exception):
    """Answer the call with this *code*; *status* is the HTTP status."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status
