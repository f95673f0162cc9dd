"""Where drills are played: each on a cloud of its own, or all on the one that is up."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from reprieve.domain.clock import REAL_NOTICE
from reprieve.domain.errors import ReprieveError
from reprieve.usecases.submit import Cancel
from reprieve_cli.drill.scenario import Scenario
from reprieve_cli.drill.stage import ALIVE, Stage, open_stage
from reprieve_cli.errors import BadInputError, CloudUnreachableError
from reprieve_cli.local import cloud as embedded
from reprieve_cli.local.control import ControlError
from reprieve_cli.local.deploy import DeployError
from reprieve_cli.local.localize import LocalizeError
from reprieve_cli.provision import prepare, provision

# What is deployed where a scenario doesn't say: two types, so that there is something to choose.
SETTINGS: dict[str, Any] = {"pools": {"gpu": {"types": ["g5.xlarge", "g6.xlarge"], "max_hosts": 3}}}

Show = Callable[[str], None]


@contextlib.contextmanager
def of_its_own(scenario: Scenario, show: Show) -> Iterator[tuple[Stage, embedded.Cloud]]:
    """Start a cloud for *scenario* alone, on its clock and with its stack; nothing is left."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(reaching())
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reprieve-drill-")))
        preparing = stack.enter_context(ThreadPoolExecutor(1)).submit(
            prepare,
            scenario.stack or SETTINGS,
            notice_seconds=scenario.notice_seconds,
            target=scratch / "assembly",
        )
        show("starting a cloud")
        cloud = stack.enter_context(embedded.start(notice_seconds=scenario.notice_seconds))
        show("synthesising the stack")
        try:
            localized = preparing.result()
        except BadInputError as error:
            raise BadInputError(f"{scenario.path}: stack: {error}") from error
        show("deploying it")
        provision(cloud, localized)
        stage = open_stage(cloud.env, cloud.control, notice_seconds=cloud.notice_seconds)
        yield stage, cloud


@contextlib.contextmanager
def that_is_up(scenario: Scenario) -> Iterator[tuple[Stage, embedded.Cloud]]:
    """
    Use the cloud that ``reprieve local up`` keeps; what the drill put there is taken away again.

    Its clock and its stack stay as they are: raise ``BadInputError`` for a scenario that wants
    a stack of its own.
    """
    if scenario.stack:
        raise BadInputError(
            f"{scenario.path}: brings a stack of its own, which the cloud that is up doesn't "
            "have: play it without --up"
        )
    with reaching():
        cloud = embedded.load()
        stage = open_stage(cloud.env, cloud.control, notice_seconds=cloud.notice_seconds)
        market = stage.world.pools()
        before = {host.instance_id for host in stage.world.hosts()}
        jobs = _live_jobs(stage)
        try:
            yield stage, cloud
        finally:
            stage.world.clear_faults()
            _cancel(stage, _live_jobs(stage) - jobs)
            for host in stage.world.hosts():
                if host.instance_id not in before and host.state in ALIVE:
                    with contextlib.suppress(ControlError):  # it went by itself meanwhile
                        stage.world.kill(host.instance_id)
            stage.world.put_pools(market)


def on_clock_of(cloud: embedded.Cloud, scenario: Scenario) -> Scenario:
    """Return *scenario* on the clock of *cloud*."""
    return replace(scenario, clock_scale=cloud.notice_seconds / REAL_NOTICE.total_seconds())


@contextlib.contextmanager
def reaching() -> Iterator[None]:
    """Raise ``CloudUnreachableError`` for whatever is wrong with the embedded cloud itself."""
    try:
        yield
    except (embedded.CloudError, ControlError, DeployError, LocalizeError) as error:
        raise CloudUnreachableError(" ".join(str(error).split())) from error


def _live_jobs(stage: Stage) -> set[str]:
    cloud = stage.cloud
    return {job_id for pool in cloud.stack.pools for job_id, _ in cloud.jobs.live(pool).jobs}


def _cancel(stage: Stage, jobs: set[str]) -> None:
    for job_id in sorted(jobs):
        with contextlib.suppress(ReprieveError):  # it ended meanwhile
            Cancel(rows=stage.cloud.rows, now=stage.cloud.now)(job_id)
