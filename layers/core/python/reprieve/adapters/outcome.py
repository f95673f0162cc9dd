"""What an AWS error says about the write behind it: refused, or nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import (
    ClientError,
    ConnectionError,  # noqa: A004 - botocore's base of every connection that failed
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
)
from botocore.parsers import ResponseParserError

from reprieve.domain.errors import UnknownOutcomeError

NO_ANSWER = (
    ConnectionError,
    HTTPClientError,
    ResponseParserError,
    CredentialRetrievalError,
    NoCredentialsError,
)

THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceeded",  # as a transaction's reason
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "Throttling",
        "ThrottlingError",  # as a transaction's reason
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
ASK_AGAIN = THROTTLED | {
    "ExpiredToken",
    "ExpiredTokenException",
    "InternalServerError",
    "TransactionConflict",  # as a transaction's reason
    "TransactionConflictException",
    "TransactionInProgressException",
}


def code_of(error: ClientError) -> str:
    """Return the service's error code."""
    return error.response.get("Error", {}).get("Code", "")


def message_of(error: ClientError) -> str:
    """Return the service's words."""
    return error.response.get("Error", {}).get("Message", "")


def is_unknown(error: ClientError) -> bool:
    """Whether *error* leaves open if the request took effect, or asks to come again."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return code_of(error) in ASK_AGAIN or status >= 500  # noqa: PLR2004 - HTTP's server errors


@contextmanager
def no_answer_is_unknown(what: str) -> Iterator[None]:
    """Turn a missing answer into ``UnknownOutcomeError``; a refusal stays a ``ClientError``."""
    try:
        yield
    except ClientError as error:
        if not is_unknown(error):
            raise
        raise UnknownOutcomeError(f"{what}: {code_of(error)}") from error
    except NO_ANSWER as error:
        raise UnknownOutcomeError(f"{what}: {error}") from error
