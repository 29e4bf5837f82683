"""A static member whose id grows when it is read: no record of its group could hold it."""

from tests.unit.frontends.connected import Connected
from tests.unit.frontends.group_requests import commit, machine, prepared

from penstock.core.error_codes import ErrorCode
from penstock.services.coordinator.shard import Status
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import join_group

BYTES = 11_000  # each of which is no UTF-8, and becomes three


async def test_it_is_refused_and_takes_no_group_out_of_service() -> None:
    async with machine({"offsets.topic.num.partitions": "1"}).broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        shard = asked.services.coordinator.shard_of("g")
        request = join_group.JoinGroupRequest(
            group_id="static",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=1_000,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol(name="range", metadata=b"")],
            group_instance_id="I" * BYTES,
        )
        body = join_group.encode_request(request, 5).replace(b"I" * BYTES, b"\xff" * BYTES)
        answer = await Connected(asked).send(ApiKey.JOIN_GROUP, 5, body).filled()
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert shard.status is Status.ACTIVE
        assert "static" not in shard.state.groups
