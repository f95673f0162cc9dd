"""botocore's service models: the one description of AWS's wire formats that we trust."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import botocore.session

if TYPE_CHECKING:
    from botocore.model import OperationModel, ServiceModel


@cache
def _session() -> botocore.session.Session:
    return botocore.session.get_session()


@cache
def service_model(service: str) -> ServiceModel:
    """Load the model of *service* (botocore's name); EC2's takes about 0.1 s once."""
    return _session().get_service_model(service)


def operation(service: str, action: str) -> OperationModel | None:
    """Find *action* of *service*; None when AWS has no such call."""
    model = service_model(service)
    return model.operation_model(action) if action in model.operation_names else None
