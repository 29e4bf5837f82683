"""What a request names over and over is answered once: else a small request would cost more memory than there is."""

from tests.unit.frontends.group_requests import commit, machine, stable
from tests.unit.frontends.in_memory import Machine

from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import describe_configs, describe_groups, describe_producers, offset_fetch

OFTEN = 20


async def test_groups_are_described_once() -> None:
    async with machine().broker() as asked:
        await stable(asked)
        request = describe_groups.DescribeGroupsRequest(groups=["g", "other"] * OFTEN)
        answer = await asked.ask(ApiKey.DESCRIBE_GROUPS, request, 6)
        assert [(group.group_id, len(group.members)) for group in answer.groups] == [("g", 1), ("other", 0)]


async def test_offsets_are_fetched_once() -> None:
    async with machine().broker() as asked:
        await stable(asked)
        assert await commit(asked, group_id="alone") == 0
        topic_id = asked.services.image.topics["orders"].id
        for version in (1, 7):
            topic = offset_fetch.OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1] * OFTEN)
            single = offset_fetch.OffsetFetchRequest(group_id="alone", topics=[topic] * OFTEN)
            topics = (await asked.ask(ApiKey.OFFSET_FETCH, single, version)).topics
            assert [(p.partition_index, p.committed_offset) for p in topics[0].partitions] == [
                (0, 7),
                (1, -1),
            ]
            assert len(topics) == 1
        for version in (8, 10):
            many = offset_fetch.OffsetFetchRequestTopics(
                name="orders", topic_id=topic_id, partition_indexes=[0, 1] * OFTEN
            )
            group = offset_fetch.OffsetFetchRequestGroup(group_id="alone", topics=[many] * OFTEN)
            request = offset_fetch.OffsetFetchRequest(groups=[group] * OFTEN)
            (told,) = (await asked.ask(ApiKey.OFFSET_FETCH, request, version)).groups
            assert [p.committed_offset for p in told.topics[0].partitions] == [7, -1]
            assert len(told.topics) == 1


async def test_producers_are_described_once() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        topic = describe_producers.TopicRequest(name="t", partition_indexes=[0, 3] * OFTEN)
        request = describe_producers.DescribeProducersRequest(topics=[topic] * OFTEN)
        (told,) = (await asked.ask(ApiKey.DESCRIBE_PRODUCERS, request, 0)).topics
        assert [partition.partition_index for partition in told.partitions] == [0, 3]


async def test_settings_are_described_once() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        resource = describe_configs.DescribeConfigsResource
        every = resource(resource_type=2, resource_name="t", configuration_keys=None)
        some = resource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
        request = describe_configs.DescribeConfigsRequest(resources=[every, some] * OFTEN)
        answer = await asked.ask(ApiKey.DESCRIBE_CONFIGS, request, 4)
        assert [len(result.configs) > 1 for result in answer.results] == [True, False]
