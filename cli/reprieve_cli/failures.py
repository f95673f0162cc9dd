"""Turns what the SDK and the ports raise into the one line that says what to do."""

from __future__ import annotations

import errno
import os
import tempfile

from reprieve.domain.errors import ReprieveError, UnknownOutcomeError
from reprieve_cli.errors import AnswerIsNoError, BadInputError, CliError, CloudUnreachableError

LOOPBACK = ("http://127.0.0.1", "https://127.0.0.1", "http://localhost", "https://localhost")

BAD_CREDENTIALS = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
FORBIDDEN = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
SERVER_ERROR = 500
SIGN_IN = "sign in (aws sso login), or set AWS_PROFILE or AWS_ACCESS_KEY_ID; then: reprieve doctor"


def translate(error: Exception) -> CliError | None:
    """Return what to tell the person about *error*; None if nothing expected raises it."""
    if isinstance(error, CliError):
        return error
    if isinstance(error, UnknownOutcomeError):
        cause = error.__cause__
        told = _of_the_sdk(cause) if isinstance(cause, Exception) else None
        if isinstance(told, CloudUnreachableError):
            return told
        return CloudUnreachableError(f"the cloud didn't say whether it worked ({error}): try again")
    if isinstance(error, ReprieveError):
        return AnswerIsNoError(str(error))
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return AnswerIsNoError(no_space(error.filename))
    return _of_the_sdk(error) or _of_the_embedded_cloud(error)


def no_space(where: object = None) -> str:
    """Word a full disk; what was written there has no name where the system gives none."""
    place = where or "what is being written"
    return (
        f"no space left for {place}: free some, or set TMPDIR (now {tempfile.gettempdir()}) "
        "to another disk"
    )


def _of_the_embedded_cloud(error: Exception) -> CliError | None:
    from reprieve_cli.local.cloud import CloudError
    from reprieve_cli.local.control import ControlError
    from reprieve_cli.local.deploy import DeployError
    from reprieve_cli.local.localize import LocalizeError

    ours = CloudError | ControlError | DeployError | LocalizeError
    return AnswerIsNoError(_short(error)) if isinstance(error, ours) else None


def _of_the_sdk(error: Exception) -> CliError | None:
    from botocore import exceptions as sdk

    if isinstance(error, sdk.ClientError):
        return _of_an_answer(error)
    if isinstance(error, sdk.ProfileNotFound):
        return BadInputError(f"{error}: set AWS_PROFILE to one that does")
    if isinstance(error, sdk.NoRegionError):
        return BadInputError("no region: set AWS_REGION to the region of the stack")
    credentials = (
        sdk.NoCredentialsError,
        sdk.PartialCredentialsError,
        sdk.CredentialRetrievalError,
        sdk.SSOError,
        sdk.TokenRetrievalError,
    )
    if isinstance(error, credentials):
        return CloudUnreachableError(f"no usable AWS credentials ({_short(error)}): {SIGN_IN}")
    if isinstance(error, sdk.HTTPClientError | sdk.EndpointConnectionError):
        return CloudUnreachableError(_nobody_answers(error))
    if isinstance(error, sdk.BotoCoreError):
        return AnswerIsNoError(_short(error))
    return None


def _of_an_answer(error: Exception) -> CliError:
    response = getattr(error, "response", {})
    operation = getattr(error, "operation_name", "the call")
    code = response.get("Error", {}).get("Code", "")
    message = response.get("Error", {}).get("Message", "") or code
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in BAD_CREDENTIALS:
        return CloudUnreachableError(f"AWS refuses the credentials ({code}): {SIGN_IN}")
    if code in FORBIDDEN:
        return AnswerIsNoError(f"not allowed to call {operation}: {_short(message)}")
    if status >= SERVER_ERROR or "Throttl" in code or code == "RequestLimitExceeded":
        return CloudUnreachableError(f"{operation} gets no answer ({code}): try again later")
    return AnswerIsNoError(f"{operation} is refused ({code}): {_short(message)}")


def _nobody_answers(error: Exception) -> str:
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if endpoint.startswith(LOOPBACK):
        return f"the embedded cloud isn't running at {endpoint}: start it with `reprieve local up`"
    return f"the cloud can't be reached ({_short(error)}): check the network and AWS_REGION"


def _short(what: object) -> str:
    return " ".join(str(what).split())[:200]
