"""DescribeCluster: who is there, and, for those who ask, who is known and not there."""

import random

import pytest
from tests.unit.frontends.in_memory import Machine

from penstock.coordination.metadata import MetadataStore
from penstock.coordination.registration import BrokerRegistration
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_cluster import DescribeClusterRequest


@pytest.mark.parametrize("fenced", [False, True])
async def test_a_broker_that_is_gone_is_told_of_as_fenced(fenced: bool) -> None:
    machine = Machine()
    async with machine.broker() as asked:
        session = await machine.store.connect()
        other = MetadataStore(session, random.Random(2))
        await other.load()
        await other.register_broker(
            BrokerRegistration(7, "identity", "elsewhere", 9092, incarnation="first"), clean=True
        )
        await session.close()
        metadata = asked.broker.metadata
        assert await metadata.until(lambda: 7 in metadata.image.lives and 7 not in metadata.image.brokers, 60)
        request = DescribeClusterRequest(include_fenced_brokers=fenced)
        answer = await asked.ask(ApiKey.DESCRIBE_CLUSTER, request, 2)
        found = [(broker.broker_id, broker.port, broker.is_fenced) for broker in answer.brokers]
        own = (asked.services.node.id, asked.broker.port, False)
        assert found == ([own, (7, -1, True)] if fenced else [own])
