"""An endpoint with a scripted policy."""

import pytest
from scripted_policy import Policy

from truing.endpoint.server import EndpointServer


@pytest.fixture
def policy():
    return Policy()


@pytest.fixture(scope="module")
def shared():
    """A server, and the policies that it asks: the last one."""
    policies = []

    def answer(*of):
        return policies[-1].answer(*of)

    def settle(*of):
        policies[-1].settle(*of)

    def earlier(*of):
        return policies[-1].earlier(*of)

    with EndpointServer(answer, settle, earlier, model="policy") as server:
        yield server, policies


@pytest.fixture
def server(shared, policy):
    server, policies = shared
    policies.append(policy)
    yield server
    server.wait_settled()
