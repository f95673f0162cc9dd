"""Finds out what would stop a job before one is submitted."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from reprieve.domain.capacity import Pool
from reprieve.domain.host import Market
from reprieve_cli import phrases, wiring
from reprieve_cli.errors import CliError, Exit
from reprieve_cli.failures import translate
from reprieve_cli.stack import Stack

if TYPE_CHECKING:
    from boto3 import Session

OLDEST_PYTHON = (3, 11)
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
EMBEDDED = "not checked here, the embedded cloud has none"

# Names of EC2's vCPU quotas; the codes differ by family, the names tell which.
QUOTAS = {
    Market.SPOT: re.compile(r"All (?P<families>.+) Spot Instance Requests"),
    Market.ON_DEMAND: re.compile(r"Running On-Demand (?P<families>.+) instances"),
}
FAMILY = re.compile(r"(?P<letters>[a-z]+?)(?P<generation>\d+)")


class State(StrEnum):
    """What a check found."""

    OK = "ok"
    WARN = "warn"  # jobs run, but it wants attention
    FAIL = "fail"  # jobs can't run
    SKIPPED = "not checked here"


MARKS = {State.OK: "ok", State.WARN: "warn", State.FAIL: "fail", State.SKIPPED: "-"}


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, what was found, and what to do about it."""

    name: str
    state: State
    found: str
    remedy: str = ""
    exit_code: Exit = Exit.NO  # if it failed


def examine() -> Iterator[Check]:
    """Yield each check as it is done; what depends on a failed one isn't tried."""
    yield _python()
    yield _sdk()
    needed: tuple[tuple[str, Callable[[], Check]], ...] = (
        ("credentials", lambda: _credentials(wiring.session())),
        ("stack", lambda: _stack(*wiring.describe_stack(wiring.session()))),
    )
    for name, look in needed:
        check = _or_failure(name, look)
        yield check
        if check.state is State.FAIL:
            return
    session = wiring.session()
    stack, described = wiring.describe_stack(session)
    if wiring.is_embedded():
        yield from (
            Check(name, State.SKIPPED, EMBEDDED)
            for name in ("spot quota", "on-demand quota", "spot role", "image")
        )
        return
    yield from _or_warning("quotas", lambda: _quotas(session, stack))
    yield from _or_warning("spot role", lambda: [_spot_role(session)])
    yield from _or_warning("image", lambda: _images(session, described))


def _or_failure(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except Exception as error:
        told = translate(error)
        if told is None:
            raise
        what, _, remedy = str(told).partition(": ")
        return Check(name, State.FAIL, what, remedy, told.exit_code)


def _or_warning(name: str, look: Callable[[], Iterable[Check]]) -> Iterator[Check]:
    """Yield the checks; one that couldn't be made isn't a fault of the installation."""
    try:
        yield from look()
    except Exception as error:
        told = translate(error)
        if told is None:
            raise
        yield Check(name, State.WARN, f"couldn't look: {told}")


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Check("python", State.FAIL, found, "install Python 3.11 or newer")
    return Check("python", State.OK, found)


def _sdk() -> Check:
    found = []
    for package in ("reprieve", "boto3", "botocore"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            return Check("versions", State.FAIL, f"no {package}", "pip install 'reprieve[cli]'")
    return Check("versions", State.OK, ", ".join(found))


def _credentials(session: Session) -> Check:
    who = wiring.client("sts", session).get_caller_identity()
    return Check("credentials", State.OK, f"account {who['Account']}, {who['Arn']}")


def _stack(stack: Stack, described: Mapping[str, Any]) -> Check:
    status = described["StackStatus"]
    where = f"{stack.name} in {stack.region}"
    if status.endswith("_IN_PROGRESS"):
        return Check("stack", State.WARN, f"{where} is {status}", "wait until it is deployed")
    if not stack.pools:
        return Check("stack", State.FAIL, f"{where} has no pool", "cdk deploy")
    if "ROLLBACK" in status or "FAILED" in status:
        return Check("stack", State.WARN, f"{where} is {status}", "cdk deploy, and read its events")
    pools = ", ".join(stack.pools)
    return Check(
        "stack", State.OK, f"{where} with {phrases.count(len(stack.pools), 'pool')}: {pools}"
    )


def _quotas(session: Session, stack: Stack) -> Iterator[Check]:
    """Compare what the pools may want with what the account may run, market by market."""
    pages = wiring.client("service-quotas", session).get_paginator("list_service_quotas")
    quotas = {
        quota["QuotaName"]: float(quota["Value"])
        for page in pages.paginate(ServiceCode="ec2")
        for quota in page["Quotas"]
    }
    types = sorted({kind for pool in stack.pools.values() for kind in pool.types})
    vcpus = _vcpus(session, types)
    for market in QUOTAS:
        pools = [p for p in stack.pools.values() if market in {tier.market for tier in p.tiers}]
        for pool in pools:
            yield judge_quota(pool, market, quotas=quotas, vcpus=vcpus)


def _vcpus(session: Session, types: list[str]) -> dict[str, int]:
    pages = wiring.client("ec2", session).get_paginator("describe_instance_types")
    return {
        kind["InstanceType"]: kind["VCpuInfo"]["DefaultVCpus"]
        for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": types}])
        for kind in page["InstanceTypes"]
    }


def judge_quota(
    pool: Pool, market: Market, *, quotas: Mapping[str, float], vcpus: Mapping[str, int]
) -> Check:
    """
    Say whether *pool* fits the account's vCPU quota of *market*.

    A replacement is launched while the interrupted host still counts, so one job needs
    room for two hosts.
    """
    name = f"{market} quota"
    found = {
        kind: value
        for kind in pool.types
        if kind in vcpus and (value := quota_of(kind, market, quotas)) is not None
    }
    if not found:
        return Check(name, State.WARN, f"pool {pool.name}: no quota found for its types")
    fits = [kind for kind, value in found.items() if value >= 2 * vcpus[kind]]
    least = min(found, key=lambda kind: vcpus[kind])
    room = f"pool {pool.name}: {max(found.values()):g} vCPUs, {least} takes {vcpus[least]}"
    ask = f"ask for {2 * vcpus[least]} or more in Service Quotas, EC2, {market}"
    if fits:
        return Check(name, State.OK, f"{room}; room for two hosts of {len(fits)} types")
    if any(value >= vcpus[kind] for kind, value in found.items()):
        return Check(name, State.WARN, f"{room}: a replacement waits for its predecessor", ask)
    return Check(name, State.FAIL if market is Market.SPOT else State.WARN, room, ask)


def quota_of(kind: str, market: Market, quotas: Mapping[str, float]) -> float | None:
    """Return the vCPUs that the account may run of *kind*'s family; None if no quota names it."""
    family = FAMILY.match(kind)
    if family is None:
        return None
    letters, generation = family["letters"].upper(), family["generation"]
    # Quotas name single generations (P5) or whole letters (G and VT); G also covers GR and G6E.
    for wanted in (f"{letters}{generation}", letters, letters[0]):
        for name, value in quotas.items():
            match = QUOTAS[market].fullmatch(name)
            if match and wanted in re.findall(r"[A-Za-z]+\d*", match["families"].upper()):
                return value
    return None


def _spot_role(session: Session) -> Check:
    iam = wiring.client("iam", session)
    try:
        iam.get_role(RoleName=SPOT_ROLE)
    except iam.exceptions.NoSuchEntityException:
        return Check(
            "spot role",
            State.WARN,
            "the account has never used Spot",
            "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
        )
    return Check("spot role", State.OK, SPOT_ROLE)


def _images(session: Session, described: Mapping[str, Any]) -> Iterator[Check]:
    ssm = wiring.client("ssm", session)
    parameters = [
        parameter
        for parameter in described.get("Parameters", [])
        if parameter["ParameterValue"].startswith("/") and parameter.get("ResolvedValue")
    ]
    if not parameters:
        yield Check("image", State.OK, "fixed by the configuration")
    for parameter in parameters:
        name, deployed = parameter["ParameterValue"], parameter["ResolvedValue"]
        if not deployed.startswith("ami-"):
            continue
        newest = ssm.get_parameter(Name=name)["Parameter"]["Value"]
        if newest == deployed:
            yield Check("image", State.OK, f"{deployed}, the newest of {name}")
        else:
            yield Check("image", State.WARN, f"{deployed}; {newest} is newer", "cdk deploy")


def verdict(checks: Iterable[Check]) -> CliError | None:
    """Return what a failed examination ends with; None if jobs can run."""
    failed = [check for check in checks if check.state is State.FAIL]
    if not failed:
        return None
    told = CliError(f"{failed[0].name}: {failed[0].found}: {failed[0].remedy}".rstrip(": "))
    told.exit_code = max(check.exit_code for check in failed)
    return told
