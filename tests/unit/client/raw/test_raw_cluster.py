"""Finding brokers, topics and offsets when not everything goes well."""

import dataclasses
import threading
import uuid
from typing import Any

import pytest
from tests.unit.client.raw.fake import CLOSE, QUICK, SILENCE, TOPIC_ID, FakePeer, offset_found

from penstock.client.raw import (
    LATEST,
    MAX_TIMESTAMP,
    BrokerError,
    OffsetAt,
    OptionError,
    RawClient,
    TimedOutError,
    TopicInfo,
    TopicPartition,
    UnknownPartitionError,
    UnknownTopicError,
    UnreachableError,
    UnsupportedError,
    cluster,
)
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_offsets import ListOffsetsResponse

AT = TopicPartition("t", 0)


def test_a_bootstrap_that_is_none() -> None:
    with pytest.raises(OptionError, match="write HOST:PORT"):
        RawClient("nowhere:port")


def test_nobody_answers() -> None:
    with FakePeer() as peer:
        bootstrap = peer.bootstrap
    with (
        RawClient(bootstrap, dataclasses.replace(QUICK, api_timeout_ms=100)) as client,
        pytest.raises(
            UnreachableError, match=r"listing the topics: gave up .* cannot connect to 127\.0\.0\.1"
        ),
    ):
        client.topics()


def test_the_next_bootstrap_address_is_tried() -> None:
    with FakePeer() as gone:
        first = gone.bootstrap
    with FakePeer() as peer, RawClient(f"{first},{peer.bootstrap}", QUICK) as client:
        assert client.topics() == {"t": TopicInfo("t", TOPIC_ID, (0,), internal=False)}


def test_metadata_is_asked_for_again() -> None:
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        peer.on(ApiKey.METADATA, CLOSE, CLOSE, peer._metadata)
        assert client.describe(["t"])["t"].partitions == (0,)


def test_a_partition_without_a_leader_is_waited_for() -> None:
    with FakePeer() as peer:
        answers = [peer._metadata] * 2

        def elected(request: object) -> object:
            peer.leaders["t"] = {0: 1}
            return peer._metadata(request)  # type: ignore[arg-type]

        peer.leaders["t"] = {0: -1}
        peer.on(ApiKey.METADATA, *answers, elected)
        peer.on(ApiKey.LIST_OFFSETS, offset_found(5))
        with RawClient(peer.bootstrap, QUICK) as client:
            assert client.offsets({AT: LATEST}) == {AT: OffsetAt(5, -1)}
        peer.leaders["t"] = {0: -1}
        peer.on(ApiKey.METADATA, peer._metadata)
        with (
            RawClient(peer.bootstrap, dataclasses.replace(QUICK, api_timeout_ms=50)) as client,
            pytest.raises(TimedOutError, match="LEADER_NOT_AVAILABLE"),
        ):
            client.offsets({AT: LATEST})


def test_offsets_are_asked_for_again_until_all_are_there() -> None:
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        peer.on(
            ApiKey.LIST_OFFSETS,
            offset_found(-1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ListOffsetsResponse(),
            CLOSE,
            offset_found(5, timestamp=77),
        )
        assert client.offsets({AT: 70}) == {AT: OffsetAt(5, 77)}
        assert len(peer.asked[ApiKey.LIST_OFFSETS]) == 4
        peer.on(ApiKey.LIST_OFFSETS, offset_found(-1, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(BrokerError, match="t-0: the broker says TOPIC_AUTHORIZATION_FAILED"):
            client.offsets({AT: 70})


def test_several_leaders_are_asked_at_once() -> None:
    with FakePeer() as peer, FakePeer(node=2) as other:
        peer.nodes[2] = other
        peer.leaders = {"t": {0: 1}, "u": {0: 2}}
        peer.topic_ids["u"] = None
        peer.on(ApiKey.LIST_OFFSETS, offset_found(5))
        answer = offset_found(6)
        answer.topics[0].name = "u"
        other.on(ApiKey.LIST_OFFSETS, answer)
        with RawClient(peer.bootstrap, QUICK) as client:
            found = client.offsets({AT: LATEST, TopicPartition("u", 0): LATEST}, committed=True)
        assert [listed.offset for listed in found.values()] == [5, 6]
        assert peer.asked[ApiKey.LIST_OFFSETS][0].message.isolation_level == 1


def test_a_broker_too_old_for_the_question() -> None:
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        peer.versions[ApiKey.LIST_OFFSETS] = (1, 6)
        with pytest.raises(UnsupportedError, match="7 is needed: use a newer broker"):
            client.offsets({AT: MAX_TIMESTAMP})


def test_a_partition_that_was_added_is_found_and_one_that_was_not_is_named() -> None:
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        client.describe(["t"])
        peer.leaders["t"] = {0: 1, 1: 1}
        answer = offset_found(8)
        answer.topics[0].partitions[0].partition_index = 1
        peer.on(ApiKey.LIST_OFFSETS, answer)
        assert client.offsets({TopicPartition("t", 1): LATEST})[TopicPartition("t", 1)].offset == 8
        with pytest.raises(UnknownPartitionError, match="no partition 2, only 0 to 1"):
            client.offsets({TopicPartition("t", 2): LATEST})


def test_an_answer_that_always_leaves_a_partition_out_is_given_up() -> None:
    with FakePeer() as peer:
        peer.on(ApiKey.LIST_OFFSETS, ListOffsetsResponse())
        with (
            RawClient(peer.bootstrap, dataclasses.replace(QUICK, api_timeout_ms=50)) as client,
            pytest.raises(UnreachableError, match="left partitions out"),
        ):
            client.offsets({AT: LATEST})


def test_without_retries_a_missing_topic_is_still_called_so() -> None:
    with FakePeer() as peer:
        options = dataclasses.replace(QUICK, retries_max=0)
        with (
            RawClient(peer.bootstrap, options) as client,
            pytest.raises(UnknownTopicError, match="no topic nix"),
        ):
            client.describe(["nix"])


def test_a_leader_that_was_replaced_and_does_not_know_it_is_not_asked() -> None:
    """It is cut off from the others, and clients still reach it: it would answer for an earlier time."""
    with FakePeer(1) as old, FakePeer(2) as new:
        for peer in (old, new):
            peer.nodes = {1: old, 2: new}
            peer.on(ApiKey.LIST_OFFSETS, offset_found(peer.node))
        new.leaders, new.leader_epoch = {"t": {0: 2}}, 5
        with RawClient(old.bootstrap, QUICK) as client:
            assert client.offsets({AT: LATEST})[AT].offset == 1, "nobody knows better yet"
            client.expect(TOPIC_ID, {0: 5})
            assert client.offsets({AT: LATEST})[AT].offset == 2
            assert client.leader_epoch(AT) == 5
            # Also when it is asked for everything.
            client._cluster._behind.clear()
            client.topics()
            assert client.offsets({AT: LATEST})[AT].offset == 2
            # Both were behind once, and one has caught up since.
            client._cluster._behind = dict.fromkeys([("127.0.0.1", old.port), ("127.0.0.1", new.port)])
            client._cluster.doubt((AT,))
            assert client.leader_epoch(AT) == 5
        # Leader epochs that were heard of once are expected by themselves.
        with RawClient(new.bootstrap, QUICK) as client:
            assert client.leader_epoch(AT) == 5
            client._cluster._behind[("127.0.0.1", new.port)] = None
            client._cluster.doubt((AT,))
            assert client.leader_epoch(AT) == 5


def test_who_finds_nobody_that_leads_in_the_expected_epoch_gives_up() -> None:
    with (
        FakePeer() as peer,
        RawClient(peer.bootstrap, dataclasses.replace(QUICK, api_timeout_ms=50)) as client,
    ):
        client.expect(TOPIC_ID, {0: 4})
        with pytest.raises(TimedOutError, match="UNKNOWN_LEADER_EPOCH"):
            client.offsets({AT: LATEST})
        peer.leader_epoch = 4
        assert client.leader_epoch(AT) == 4


def test_a_topic_that_was_made_anew_may_begin_with_low_epochs() -> None:
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        client.expect(TOPIC_ID, {0: 9})
        peer.topic_ids["t"] = uuid.UUID(int=8)
        assert client.leader_epoch(AT) == 3


def test_a_partition_without_a_leader_holds_up_no_other() -> None:
    other = TopicPartition("u", 0)
    with FakePeer() as peer, RawClient(peer.bootstrap, QUICK) as client:
        peer.leaders = {"t": {0: 1}, "u": {0: -1}}
        peer.topic_ids["u"] = uuid.UUID(int=8)
        peer.on(ApiKey.LIST_OFFSETS, offset_found(5))
        assert client.offsets({other: LATEST, AT: LATEST}, partial=True) == {AT: OffsetAt(5, -1)}
        # Where nobody answers at all, that is an error.
        hasty = dataclasses.replace(QUICK, api_timeout_ms=50)
        with (
            RawClient(peer.bootstrap, hasty) as alone,
            pytest.raises(TimedOutError, match="LEADER_NOT_AVAILABLE"),
        ):
            alone.offsets({other: LATEST}, partial=True)


def test_what_any_broker_has_heard_of_counts() -> None:
    with FakePeer(1) as old, FakePeer(2) as new, FakePeer(3) as gone:
        for peer in (old, new):
            peer.nodes = {1: old, 2: new, 3: gone}
            peer.on(ApiKey.LIST_OFFSETS, offset_found(peer.node))
        gone.on(ApiKey.METADATA, CLOSE)
        new.leaders, new.leader_epoch = {"t": {0: 2}}, 5
        with RawClient(old.bootstrap, QUICK) as client:
            heard = client.hear_all(["t", "never"])
            assert heard.topics == {"t": (TopicInfo("t", TOPIC_ID, (0,), False),) * 2}
            assert not heard.by_all
            assert client.offsets({AT: LATEST})[AT].offset == 2
        with RawClient(old.bootstrap, QUICK) as client:
            assert client.offsets({AT: LATEST})[AT].offset == 1
            client.hear_all(["t", "never"])
            assert client.offsets({AT: LATEST})[AT].offset == 2


def test_the_topic_of_a_name_is_the_one_that_most_brokers_tell() -> None:
    with FakePeer(1) as late, FakePeer(2) as second, FakePeer(3) as third:
        for peer in (late, second, third):
            peer.nodes = {1: late, 2: second, 3: third}

        def of_before(asked: Any) -> Any:
            answer = late._metadata(asked)
            for topic in answer.topics:
                topic.topic_id = uuid.uuid4().bytes
            return answer

        late.on(ApiKey.METADATA, of_before)
        # Whoever is asked by several addresses has one voice.
        late_alias = late.bootstrap.replace("127.0.0.1", "localhost")
        with RawClient(f"{late.bootstrap},{late_alias}", QUICK) as client:
            assert client.hear_all(["t"]).by_most == {"t": TOPIC_ID}
            third.on(ApiKey.METADATA, CLOSE)
            assert client.hear_all(["t"]).by_most == {}


def test_a_frozen_broker_is_not_waited_for_like_one_whose_answer_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster, "HEAR_ALL_MS", 50)
    patient = dataclasses.replace(QUICK, request_timeout_ms=3_600_000)
    with FakePeer(1) as peer, FakePeer(2) as frozen:
        peer.nodes = {1: peer, 2: frozen}
        frozen.on(ApiKey.METADATA, SILENCE)
        with RawClient(peer.bootstrap, patient) as client:
            client.hear_all(["t"])
            assert client.leader_epoch(AT) == 3


def test_all_brokers_are_asked_at_once() -> None:
    both = threading.Barrier(2)
    with FakePeer(1) as first, FakePeer(2) as second:
        for peer in (first, second):
            peer.nodes = {1: first, 2: second}

            def together(asked: Any, peer: FakePeer = peer) -> Any:
                both.wait()
                return peer._metadata(asked)

            peer.on(ApiKey.METADATA, together)
        first.leader_epoch, second.leader_epoch = 3, 4
        with RawClient(f"{first.bootstrap},{second.bootstrap},127.0.0.1:1", QUICK) as client:
            # One that nobody names is perhaps no broker any more.
            assert client.hear_all(["t"]).by_all
            assert client._cluster._epochs[TOPIC_ID] == {0: 4}


@pytest.mark.parametrize(("second_says", "all_say"), [("here", "here"), ("elsewhere", None), (None, None)])
def test_the_cluster_is_the_one_that_all_brokers_name(second_says: str | None, all_say: str | None) -> None:
    with FakePeer(1) as first, FakePeer(2) as second:
        first.nodes = second.nodes = {1: first, 2: second}
        second.cluster_id = second_says
        with RawClient(first.bootstrap, QUICK) as client:
            assert client.cluster is None
            assert client.hear_all(["t"]).cluster == all_say
            client.topics()
            assert client.cluster == "here"
