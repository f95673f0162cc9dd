"""An error as AWS would return it."""

from __future__ import annotations

from typing import Any


class AwsError(Exception):
    """Answer the call with this *code*; *status* is the HTTP status, *fields* go with it."""

    def __init__(
        self, code: str, message: str, *, status: int = 400, fields: dict[str, Any] | None = None
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status
        self.fields = fields or {}
