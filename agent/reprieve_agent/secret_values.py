"""
The values of a job's secrets: read in the job's own role, kept in memory only.

What isn't there, or isn't the job's to read, ends the attempt and names the variable.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from reprieve.adapters import sdk
from reprieve.domain.lease import LeaseKey
from reprieve.domain.spec import JobSpec
from reprieve.ports.checkpoints import AbortedError
from reprieve_agent.code import SetupError
from reprieve_agent.credentials import CLIENT, CallError, Credentials, JobRole
from reprieve_agent.places import Places

if TYPE_CHECKING:
    from botocore.session import Session

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 120.0
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
FIELDS_OF_ARN = 6

NO_ROLE = (
    "the job has secrets and this stack has no role to read them in: "
    "set job_role_arn in its configuration and deploy"
)


class HasCredentials(Protocol):
    """The role as one job has it."""

    def credentials(self) -> Credentials:
        """Return credentials that live for a while; raise ``CallError``."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the attempts of this host were given; nothing of it is ever written down."""

    role: JobRole | None
    _values: dict[LeaseKey, dict[str, str]] = field(default_factory=dict, repr=False)

    def of(
        self, key: LeaseKey, spec: JobSpec, places: Places, stop: threading.Event
    ) -> dict[str, str]:
        """Return the values by variable; raise ``SetupError``, or ``AbortedError`` on *stop*."""
        if spec.secrets and key not in self._values:
            if self.role is None:
                raise SetupError(NO_ROLE)
            session = self.role.open(key, places).session
            self._values[key] = fetch(spec.secrets, session, stop)
        return self._values.get(key, {})

    def forget(self, key: LeaseKey) -> None:
        """Drop the values of an attempt that is over."""
        self._values.pop(key, None)


def fetch(
    wanted: Mapping[str, str], session: HasCredentials, stop: threading.Event
) -> dict[str, str]:
    """Read each secret of *wanted*, variable to ARN; raise as ``Secrets.of`` does."""
    ends = time.monotonic() + PATIENCE_SECONDS
    return {name: _patiently(name, arn, session, stop, ends) for name, arn in wanted.items()}


def _patiently(
    name: str, arn: str, session: HasCredentials, stop: threading.Event, ends: float
) -> str:
    """Ask again while the failure may pass: a host's first minute is not its best one."""
    pause = FIRST_PAUSE_SECONDS
    while not stop.is_set():
        try:
            value = _read(name, arn, session.credentials())
        except CallError as error:
            if not error.passing or time.monotonic() + pause >= ends:
                raise SetupError(f"secret {name}: {error}") from None
            log.warning(
                "secret will be asked for again", extra={"variable": name, "error": str(error)}
            )
            stop.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        else:
            if "\0" in value:
                raise SetupError(f"secret {name}: its value holds a NUL byte")
            return value
    raise AbortedError("the reading of secrets was called off")


def _read(name: str, arn: str, credentials: Credentials) -> str:
    fields = arn.split(":", FIELDS_OF_ARN - 1)
    service = fields[2] if len(fields) == FIELDS_OF_ARN else ""
    if service == "secretsmanager":
        return _from_secrets_manager(name, arn, _session(credentials, region=fields[3]))
    if service == "ssm":
        return _from_parameter(arn, _session(credentials, region=fields[3]))
    # Not repeated here: it may be the secret itself.
    raise SetupError(f"secret {name}: not the ARN of a Secrets Manager secret or an SSM parameter")


def _from_secrets_manager(name: str, arn: str, session: Session) -> str:
    client = sdk.client(session, "secretsmanager", config=CLIENT)
    try:
        answer = client.get_secret_value(SecretId=arn)
    except (ClientError, BotoCoreError) as error:
        raise CallError.of("GetSecretValue", error) from None
    finally:
        client.close()
    value = answer.get("SecretString")
    if not isinstance(value, str):
        raise SetupError(f"secret {name}: its value is binary, which no variable can hold")
    return value


def _from_parameter(arn: str, session: Session) -> str:
    client = sdk.client(session, "ssm", config=CLIENT)
    try:
        answer = client.get_parameter(Name=arn, WithDecryption=True)
    except (ClientError, BotoCoreError) as error:
        raise CallError.of("GetParameter", error) from None
    finally:
        client.close()
    return str(answer["Parameter"]["Value"])


def _session(credentials: Credentials, *, region: str) -> Session:
    """Return a session with nothing but the job's credentials: the host's own never read these."""
    session = sdk.session(region)
    session.set_credentials(
        credentials.access_key_id, credentials.secret_access_key, credentials.session_token
    )
    return session
