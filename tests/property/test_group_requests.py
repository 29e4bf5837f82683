"""Whatever clients ask of groups, in any version: no shard goes out of service, no broker ends, nothing stored is lost.

Odd names (empty, too long, no UTF-8), members that do not exist or do, repeats, empty lists, numbers at the ends of
their range, several at once and time between them. After it another group commits as ever, and after a restart all
offsets are what they were.
"""

import asyncio
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import PenstockError
from penstock.frontends.kafka.registry import REGISTRY
from penstock.services.coordinator.shard import Shard, Status
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_loop import SimLoop
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.connection import ClientConnection
from penstock.wire.kafka.generated import create_topics as ct
from penstock.wire.kafka.generated import delete_groups as dg
from penstock.wire.kafka.generated import describe_groups as describe
from penstock.wire.kafka.generated import find_coordinator as fc
from penstock.wire.kafka.generated import heartbeat as hb
from penstock.wire.kafka.generated import join_group as jg
from penstock.wire.kafka.generated import leave_group as lg
from penstock.wire.kafka.generated import list_groups as listed
from penstock.wire.kafka.generated import offset_commit as oc
from penstock.wire.kafka.generated import offset_delete as od
from penstock.wire.kafka.generated import offset_fetch as of
from penstock.wire.kafka.generated import sync_group as sg

TOPIC = "orders"
# On the wire bytes that are no UTF-8, each of which becomes three when it is read.
NO_TEXT = "?!?!"
HUGE = NO_TEXT * 8000
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "100",
    "group.max.size": "3",
    "offsets.retention.check.interval.ms": "3000",
}
# A story takes a few thousand; a timer that is always due would take them all.
STEPS_MAX = 100_000


def mostly(*usual: Any, odd: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    """One odd value is enough to have a request refused: most are as they should be, so that some get further."""
    return st.sampled_from([*usual * (-(-6 * len(odd) // len(usual))), *odd])


int32 = mostly(0, 1, odd=(-1, -(2**31), 2**31 - 1))
int64 = mostly(0, 7, odd=(-1, -(2**63), 2**63 - 1))
groups = mostly("a", odd=("b", "", NO_TEXT, HUGE, "g" * 32767))
names = mostly("range", "sticky", odd=("", NO_TEXT, HUGE))
topics = mostly(TOPIC, odd=("gone", "", "__consumer_offsets", HUGE))
instances = mostly(None, "one", "two", odd=("", HUGE))
blobs = mostly(b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff", odd=(b"", b"\x00", b"x" * 5000))
sessions = mostly(200, 6000, odd=(0, -1, 2**31 - 1))
rebalances = st.sampled_from([200, 6000, 0, -1, 2**31 - 1])
types = mostly("consumer", odd=("connect", "", HUGE))
texts = mostly(None, "note", odd=("", HUGE, "m" * 5000))


class Wire(asyncio.Protocol):
    """Sends one request, with bytes that no codec of ours would write."""

    def __init__(self, api: ApiKey, version: int, request: Any) -> None:
        self._connection = ClientConnection(NO_TEXT)
        self._frame = self._connection.send(api, version, request)[1].replace(NO_TEXT.encode(), b"\xff" * 4)
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        for response in self._connection.receive(data):
            self.answer.set_result(response.message())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(ConnectionResetError())


class Story:
    def __init__(self, loop: SimLoop, data: st.DataObject) -> None:
        self.loop = loop
        self.data = data
        self.machine = SimBroker(loop, settings=SETTINGS)
        self.members = [""]  # that were given out
        self.generation = 1
        self._asked = 0

    # -- what is asked ---------------------------------------------------------------------------------------

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(strategy)

    def member(self) -> str:
        return str(self.draw(mostly(*self.members, odd=("nobody", HUGE))))

    def time_of(self) -> int:
        return int(self.draw(mostly(self.generation, odd=(-1, 0, -(2**31), 2**31 - 1))))

    def join(self) -> Any:
        return jg.JoinGroupRequest(
            group_id=self.draw(groups),
            session_timeout_ms=self.draw(sessions),
            rebalance_timeout_ms=self.draw(rebalances),
            member_id=self.member(),
            group_instance_id=self.draw(instances),
            protocol_type=self.draw(types),
            protocols=[
                jg.JoinGroupRequestProtocol(name=name, metadata=blob)
                for name, blob in self.draw(st.lists(st.tuples(names, blobs), max_size=4))
            ],
        )

    def sync(self) -> Any:
        return sg.SyncGroupRequest(
            group_id=self.draw(groups),
            generation_id=self.time_of(),
            member_id=self.member(),
            group_instance_id=self.draw(instances),
            protocol_type=self.draw(st.none() | types),
            protocol_name=self.draw(st.none() | names),
            assignments=[
                sg.SyncGroupRequestAssignment(member_id=self.member(), assignment=blob)
                for blob in self.draw(st.lists(blobs, max_size=4))
            ],
        )

    def heartbeat(self) -> Any:
        return hb.HeartbeatRequest(
            group_id=self.draw(groups),
            generation_id=self.time_of(),
            member_id=self.member(),
            group_instance_id=self.draw(instances),
        )

    def leave(self) -> Any:
        who = [
            lg.MemberIdentity(member_id=self.member(), group_instance_id=instance)
            for instance in self.draw(st.lists(instances, max_size=4))
        ]
        return lg.LeaveGroupRequest(group_id=self.draw(groups), member_id=self.member(), members=who)

    def commit(self) -> Any:
        return oc.OffsetCommitRequest(
            group_id=self.draw(groups),
            generation_id_or_member_epoch=self.time_of(),
            member_id=self.member(),
            group_instance_id=self.draw(instances),
            retention_time_ms=self.draw(int64),
            topics=[
                oc.OffsetCommitRequestTopic(
                    name=name,
                    topic_id=self.topic_id(),
                    partitions=[
                        oc.OffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=offset,
                            committed_leader_epoch=epoch,
                            committed_metadata=text,
                        )
                        for number, offset, epoch, text in self.draw(
                            st.lists(st.tuples(int32, int64, int32, texts), max_size=4)
                        )
                    ],
                )
                for name in self.draw(st.lists(topics, max_size=4))
            ],
        )

    def fetch(self) -> Any:
        numbers = st.lists(int32, max_size=4)
        return of.OffsetFetchRequest(
            group_id=self.draw(groups),
            topics=[
                of.OffsetFetchRequestTopic(name=name, partition_indexes=self.draw(numbers))
                for name in self.draw(st.lists(topics, max_size=4))
            ],
            groups=[
                of.OffsetFetchRequestGroup(
                    group_id=group,
                    topics=self.draw(st.none() | st.just([]))
                    or [
                        of.OffsetFetchRequestTopics(
                            name=name, topic_id=self.topic_id(), partition_indexes=self.draw(numbers)
                        )
                        for name in self.draw(st.lists(topics, max_size=4))
                    ],
                )
                for group in self.draw(st.lists(groups, max_size=4))
            ],
        )

    def topic_id(self) -> bytes:
        assert self.machine.broker is not None
        known = [topic.id for topic in self.machine.broker.services.image.topics.values()]
        return bytes(self.draw(st.sampled_from([*known, bytes(16)])))

    def delete(self) -> Any:
        return dg.DeleteGroupsRequest(groups_names=self.draw(st.lists(groups, max_size=4)))

    def delete_offsets(self) -> Any:
        return od.OffsetDeleteRequest(
            group_id=self.draw(groups),
            topics=[
                od.OffsetDeleteRequestTopic(
                    name=name,
                    partitions=[
                        od.OffsetDeleteRequestPartition(partition_index=partition)
                        for partition in self.draw(st.lists(int32, max_size=4))
                    ],
                )
                for name in self.draw(st.lists(topics, max_size=4))
            ],
        )

    def describe(self) -> Any:
        return describe.DescribeGroupsRequest(groups=self.draw(st.lists(groups, max_size=4)))

    def list_groups(self) -> Any:
        return listed.ListGroupsRequest(states_filter=self.draw(st.lists(names, max_size=4)))

    # -- the story -------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.machine.start()
        self.loop.run_until(lambda: self.machine.ready)
        self.loop.run_until_complete(self.loop.spawn("admin", prepare()))
        kinds = [
            (ApiKey.JOIN_GROUP, self.join),
            (ApiKey.SYNC_GROUP, self.sync),
            (ApiKey.OFFSET_COMMIT, self.commit),
            (ApiKey.LEAVE_GROUP, self.leave),
            (ApiKey.HEARTBEAT, self.heartbeat),
            (ApiKey.OFFSET_FETCH, self.fetch),
            (ApiKey.DELETE_GROUPS, self.delete),
            (ApiKey.OFFSET_DELETE, self.delete_offsets),
            (ApiKey.DESCRIBE_GROUPS, self.describe),
            (ApiKey.LIST_GROUPS, self.list_groups),
        ]
        for _ in range(self.draw(st.integers(0, 3))):
            self._asked += 1
            self.loop.spawn(f"client-{self._asked}", self._live(self.draw(instances), self.draw(rebalances)))
        self.loop.run_for(1.0)
        for _ in range(self.draw(st.integers(1, 15))):
            api, request = self.draw(st.sampled_from([*kinds[:3], *kinds]))
            version = self.draw(st.integers(REGISTRY[api].min_version, REGISTRY[api].max_version))
            self._asked += 1
            self.loop.spawn(f"client-{self._asked}", self._ask(api, version, request()))
            self.loop.run_for(self.draw(st.sampled_from([0.01, 0.01, 0.5, 3.0])))
        self.loop.run_until_complete(self.loop.spawn("admin", commit_beside()))
        before = self.offsets()
        self.machine.kill()
        self.machine.start()
        self.loop.run_until(lambda: self.machine.ready)
        self.loop.run_until(self.is_loaded)
        assert self.machine.broker is not None
        assert self.machine.broker.services.coordinator.damaged_records == 0
        assert self.offsets() == before

    async def _ask(self, api: ApiKey, version: int, request: Any) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, wire = await loop.create_connection(lambda: Wire(api, version, request), "broker", PORT)
            answer = await wire.answer
        except (OSError, PenstockError):
            return  # it was refused, or cannot be answered; then only its own connection ends
        if api == ApiKey.JOIN_GROUP and answer.member_id not in self.members:
            self.members.append(answer.member_id)
        if api == ApiKey.JOIN_GROUP and answer.generation_id > 0:
            self.generation = answer.generation_id

    async def _live(self, instance: str | None, rebalance_timeout_ms: int) -> None:
        """A member as members are, that stays where it is when another rebalance begins."""
        client = SimClient("broker", PORT)
        named: dict[str, Any] = {"group_id": "a", "group_instance_id": instance}
        protocol = jg.JoinGroupRequestProtocol(name="range", metadata=b"")
        request = jg.JoinGroupRequest(
            protocol_type="consumer", protocols=[protocol], session_timeout_ms=6000, **named
        )
        request.rebalance_timeout_ms = rebalance_timeout_ms
        error, again = -1, (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS)
        with suppress(OSError, TimeoutError):
            while error in (-1, *again):
                joined = await client.call(ApiKey.JOIN_GROUP, request, 5)
                error, request.member_id = joined.error_code, joined.member_id
                named.update(member_id=joined.member_id, generation_id=joined.generation_id)
                if error == ErrorCode.NONE:
                    error = (await client.call(ApiKey.SYNC_GROUP, sg.SyncGroupRequest(**named))).error_code
            self.members.append(request.member_id)
            while error == ErrorCode.NONE:
                await asyncio.sleep(0.5)
                error = (await client.call(ApiKey.HEARTBEAT, hb.HeartbeatRequest(**named))).error_code

    def shards(self) -> list[Shard]:
        assert self.machine.broker is not None
        return list(self.machine.broker.services.coordinator.shards())

    def is_loaded(self) -> bool:
        return all(shard.status is Status.ACTIVE for shard in self.shards())

    def offsets(self) -> Any:
        return {
            (group, topic, number): value
            for shard in self.shards()
            for group, table in shard.state.offsets.items()
            for topic, number, value in table.all()
        }


async def prepare() -> None:
    client = SimClient("broker", PORT)
    topic = ct.CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
    await client.call(ApiKey.CREATE_TOPICS, ct.CreateTopicsRequest(topics=[topic], timeout_ms=1000))
    await client.call(ApiKey.FIND_COORDINATOR, fc.FindCoordinatorRequest(coordinator_keys=["a"]))


async def commit_beside() -> None:
    """A group that nobody else knows, in each shard."""
    client = SimClient("broker", PORT)
    partition = oc.OffsetCommitRequestPartition(partition_index=1, committed_offset=5)
    topic = oc.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    for group in ("beside", "besides"):
        request = oc.OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
        )
        answer = await client.call(ApiKey.OFFSET_COMMIT, request)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_request_takes_groups_out_of_service(data: st.DataObject) -> None:
    went = []
    go_offline = Shard.go_offline

    def noted(shard: Shard, reason: str) -> None:
        went.append(reason)
        go_offline(shard, reason)

    with SimLoop(1, steps_max=STEPS_MAX) as loop, patch.object(Shard, "go_offline", noted):
        Story(loop, data).run()
    assert not went
