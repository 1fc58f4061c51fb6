"""An endpoint with a scripted policy."""

import pytest
from scripted_policy import Policy

from truing.endpoint.server import EndpointServer


@pytest.fixture
def policy():
    return Policy()


@pytest.fixture
def server(policy):
    with EndpointServer(policy.answer, policy.settle, model="policy") as server:
        yield server
