"""A broker is who it says only with the cluster's secret, on this connection, to this broker, and once."""

from random import Random
from typing import Any

import pytest

from penstock.coordination.image import ClusterImage
from penstock.coordination.registration import BrokerRegistration
from penstock.core.error_codes import ErrorCode
from penstock.core.session import NO_BROKER, Session
from penstock.replication.introduction import BrokerAuthenticator, Identity, is_registered, prove
from penstock.wire.peers.broker_introduction import IntroductionRequest

LISTENER = "BROKERS"
SECRET = b"s" * 32
ASKED = 2
SPEAKER, EPOCH = 1, 57
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def image_of(secret: bytes = SECRET, cluster_id: str = "cluster") -> ClusterImage:
    image = ClusterImage()
    image.secret, image.cluster_id = secret, cluster_id
    image.brokers[SPEAKER] = BrokerRegistration(SPEAKER, "dir", "host", 9092, epoch=EPOCH)
    return image


def door(image: ClusterImage | None = None) -> BrokerAuthenticator:
    return BrokerAuthenticator(ASKED, image or image_of(), Random(1), LISTENER)


def session() -> Session:
    return Session(LISTENER, "10.0.0.1")


def introduced(
    keeper: BrokerAuthenticator, caller: Session, *, image: ClusterImage | None = None, asked: int = ASKED
) -> int:
    speaker = Identity(SPEAKER, image or image_of(), lambda: EPOCH)
    request = speaker.introduction(asked, EPOCH, keeper.challenge(caller).nonce)
    return keeper.introduce(caller, request).error_code


def test_who_knows_the_secret_is_the_broker_it_says() -> None:
    caller = session()
    assert introduced(door(), caller) == ErrorCode.NONE
    assert (caller.broker, caller.broker_epoch) == (SPEAKER, EPOCH)


@pytest.mark.parametrize(
    "other",
    [
        {"image": image_of(secret=b"t" * 32)},
        {"image": image_of(secret=b"")},
        {"image": image_of(cluster_id="another")},
        {"asked": 3},
    ],
    ids=["another secret", "no secret", "another cluster", "meant for another broker"],
)
def test_other_proofs_prove_nothing(other: dict[str, Any]) -> None:
    caller = session()
    assert introduced(door(), caller, **other) == REFUSED
    assert caller.broker == NO_BROKER


@pytest.mark.parametrize(("node", "epoch"), [(3, EPOCH), (SPEAKER, EPOCH + 1), (-1, EPOCH)])
def test_a_proof_is_for_one_broker_and_registration(node: int, epoch: int) -> None:
    caller, keeper = session(), door()
    proof = prove(SECRET, "cluster", keeper.challenge(caller).nonce, ASKED, SPEAKER, EPOCH)
    assert keeper.introduce(caller, IntroductionRequest(node, epoch, proof)).error_code == REFUSED
    assert caller.broker == NO_BROKER


def test_nobody_is_a_negative_broker_whatever_it_can_prove() -> None:
    caller, keeper = session(), door()
    proof = prove(SECRET, "cluster", keeper.challenge(caller).nonce, ASKED, -7, EPOCH)
    assert keeper.introduce(caller, IntroductionRequest(-7, EPOCH, proof)).error_code == REFUSED


def test_a_proof_that_was_overheard_is_good_nowhere() -> None:
    keeper, caller, another = door(), session(), session()
    request = Identity(SPEAKER, image_of(), lambda: EPOCH).introduction(
        ASKED, EPOCH, keeper.challenge(caller).nonce
    )
    assert keeper.introduce(another, request).error_code == REFUSED  # it never asked
    keeper.challenge(another)
    assert keeper.introduce(another, request).error_code == REFUSED  # it was given another nonce
    assert keeper.introduce(caller, request).error_code == ErrorCode.NONE
    assert keeper.introduce(caller, request).error_code == REFUSED  # once
    assert caller.broker == NO_BROKER, "who fails is none any more"


def test_without_a_secret_nobody_can_prove_anything() -> None:
    empty = image_of(secret=b"")
    assert introduced(door(empty), session(), image=empty) == REFUSED


def test_on_a_listener_for_clients_there_are_no_brokers() -> None:
    keeper, caller = door(), Session("CLIENTS", "10.0.0.1")
    answer = keeper.challenge(caller)
    assert (answer.error_code, answer.nonce) == (REFUSED, b"")
    request = Identity(SPEAKER, image_of(), lambda: EPOCH).introduction(ASKED, EPOCH, b"")
    assert keeper.introduce(caller, request).error_code == REFUSED


def test_registrations_are_asked_for_at_each_use() -> None:
    image = image_of()
    assert is_registered(image, SPEAKER, EPOCH)
    assert not is_registered(image, SPEAKER, EPOCH - 1)
    assert not is_registered(image, 3, EPOCH)
    assert not is_registered(image, NO_BROKER, NO_BROKER)
