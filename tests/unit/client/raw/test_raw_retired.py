"""What the raw client makes of answers about retired partitions, also of brokers that are not ours."""

from tests.unit.client.raw.fake import CLOSE, QUICK, FakePeer, offset_found

from penstock.client.raw import RawClient, Retirement, TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_offsets import ListOffsetsResponse

AT = TopicPartition("t", 0)


def test_a_broker_of_ours_tells_the_limit_and_the_beginning() -> None:
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        peer.on(ApiKey.LIST_OFFSETS, CLOSE, ListOffsetsResponse(), offset_found(10, timestamp=14))
        assert client.retirements([AT]) == {AT: Retirement(10, 14)}
        peer.on(ApiKey.LIST_OFFSETS, offset_found(-1, timestamp=14))
        assert client.retirements([AT]) == {AT: Retirement(None, 14)}
        assert client.retirements([]) == {}


def test_another_broker_knows_nothing_of_it_whatever_it_answers() -> None:
    as_a_time = offset_found(5, timestamp=1_700_000_000_000)
    as_a_time.topics[0].partitions[0].leader_epoch = 3
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        for answer in (
            offset_found(-1, error=ErrorCode.UNSUPPORTED_VERSION),
            offset_found(-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
            offset_found(-1),
            as_a_time,
        ):
            peer.on(ApiKey.LIST_OFFSETS, answer)
            assert client.retirements([AT]) == {}
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        peer.versions[ApiKey.LIST_OFFSETS] = (1, 3)
        assert client.retirements([AT]) == {}
