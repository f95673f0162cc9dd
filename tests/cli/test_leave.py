"""``leave``: no host stays behind, and no job is given up unasked."""

from __future__ import annotations

from reprieve.domain.host import InstanceState
from tests.builders import HOST, OTHER_HOST, a_job, a_lease, an_instance
from tests.cli.conftest import Cli
from tests.stored import submit


def test_every_host_is_terminated_and_none_is_bought_any_more(cli: Cli) -> None:
    for instance_id in (HOST, OTHER_HOST):
        cli.memory.fleet.instances[instance_id] = an_instance(instance_id)
    assert cli("leave") == 0
    assert cli.last_line == "2 hosts terminated, none left"
    assert cli.stopped == [True]
    states = {i.state for i in cli.memory.fleet.instances.values()}
    assert states == {InstanceState.GONE}


def test_jobs_that_are_not_over_are_named_and_nothing_is_touched(cli: Cli) -> None:
    submit(cli.memory.rows, a_job(), a_lease())
    cli.memory.fleet.instances[HOST] = an_instance()
    assert cli("leave") == 1
    assert "1 job not over (job-1)" in cli.err
    assert (cli.stopped, cli.memory.fleet.terminated) == ([], [])
    assert cli("leave", "--yes") == 0
    assert cli.memory.fleet.terminated == [HOST]


def test_a_stack_without_hosts_is_left_at_once(cli: Cli) -> None:
    assert cli("leave", "--json") == 0
    assert cli.document == {"terminated": []}
