"""One synth a session for each shape of deployment: Node and the CDK take seconds to start."""

from __future__ import annotations

import pytest

from tests.infra.synthesised import Template


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Return the template of a deployment that chose nothing."""
    return Template.synthesise(tmp_path_factory.mktemp("default"))


@pytest.fixture(scope="session")
def own_network(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """Return the template of a deployment that chose much."""
    return Template.synthesise(
        tmp_path_factory.mktemp("own"),
        stack="Training",
        config={
            "network": {
                "vpc_id": "vpc-0123456789abcdef0",
                "subnets": {
                    "eu-west-1b": "subnet-0bbbbbbbbbbbbbbbb",
                    "eu-west-1a": "subnet-0aaaaaaaaaaaaaaaa",
                },
            },
            "pools": {
                "small": {"types": ["g4dn.xlarge"], "max_hosts": 4},
                "a100-x8": {
                    "types": ["p4d.24xlarge", "p4de.24xlarge"],
                    "tiers": ["on-demand"],
                    "max_usd_per_hour": 60,
                    "on_demand_base": 1,
                    "image": {"id": "ami-0123456789abcdef0", "root_device": "/dev/xvda"},
                    "volume_gb": 500,
                },
            },
            "alarm_email": "ops@example.com",
            "job_role_arn": "arn:aws:iam::123456789012:role/training-data",
            "permissions_boundary_arn": "arn:aws:iam::123456789012:policy/boundary",
            "undo_days": 0,
            "tags": {"team": "vision"},
        },
    )
