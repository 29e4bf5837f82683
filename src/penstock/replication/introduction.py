"""How a broker proves to another which one it is, on each connection anew.

    broker 1, registered under epoch 57                     broker 2

      ── BrokerChallenge ─────────────────────────────────▶   remembers a nonce with this connection
      ◀───────────────────────────────────────── nonce ──
      ── BrokerIntroduction(1, epoch 57, proof) ──────────▶   forgets the nonce; session.broker = 1, of epoch 57
      ── its request, without waiting for the answer ─────▶
      ◀────────────────────────────────────── accepted ──

    proof = HMAC-SHA256(secret of the cluster, who is meant and who speaks; see `_stated`)

The secret is in the coordination store and never on the wire. A proof is good once, for the connection that was given
the nonce, for the broker that gave it, and for this id and epoch. Whether the epoch is (still) the registered one is
not asked here: who is asked may not have heard of it yet. It is where it matters, at each use (`is_registered`).

Only on the listener that brokers use among themselves: elsewhere nobody can become a broker, whatever they know.
"""

import hashlib
import hmac
from collections.abc import Callable
from random import Random
from struct import Struct as Layout

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.session import NO_BROKER, Session
from penstock.wire.peers.broker_challenge import ChallengeResponse
from penstock.wire.peers.broker_introduction import IntroductionRequest, IntroductionResponse

_NONCE_BYTES = 32
_PURPOSE = b"penstock broker introduction 0"
_STATED = Layout(">HHiiq")
_REFUSED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def prove(secret: bytes, cluster_id: str, nonce: bytes, asked: int, node: int, broker_epoch: int) -> bytes:
    """That whoever says this knows the secret, and says it to `asked`, which gave the nonce."""
    stated = _stated(cluster_id.encode(), nonce, asked, node, broker_epoch)
    return hmac.digest(secret, stated, hashlib.sha256)


def _stated(cluster_id: bytes, nonce: bytes, asked: int, node: int, broker_epoch: int) -> bytes:
    """Lengths first: no two different statements have the same bytes."""
    head = _STATED.pack(len(cluster_id), len(nonce), asked, node, broker_epoch)
    return _PURPOSE + head + cluster_id + nonce


def is_registered(image: ClusterImage, broker: int, broker_epoch: int) -> bool:
    """Whether it is a broker as it is registered, as far as is known here."""
    registered = image.brokers.get(broker)
    return registered is not None and registered.epoch == broker_epoch


class Identity:
    """Of this broker, towards others."""

    def __init__(self, node: int, image: ClusterImage, broker_epoch: Callable[[], int]) -> None:
        self.node = node
        self._image = image
        self.broker_epoch = broker_epoch

    def introduction(self, asked: int, broker_epoch: int, nonce: bytes) -> IntroductionRequest:
        image = self._image
        proof = prove(image.secret, image.cluster_id, nonce, asked, self.node, broker_epoch)
        return IntroductionRequest(self.node, broker_epoch, proof)


class BrokerAuthenticator:
    """Of this broker, where others introduce themselves."""

    def __init__(self, node: int, image: ClusterImage, rng: Random, listener: str) -> None:
        self._node = node
        self._image = image
        self._rng = rng
        self._listener = listener  # the one between brokers

    def challenge(self, session: Session) -> ChallengeResponse:
        if session.listener != self._listener:
            return ChallengeResponse(_REFUSED)
        session.challenge = self._rng.randbytes(_NONCE_BYTES)
        return ChallengeResponse(nonce=session.challenge)

    def introduce(self, session: Session, request: IntroductionRequest) -> IntroductionResponse:
        """Who fails is no broker any more, whoever it was before."""
        nonce, session.challenge = session.challenge, b""
        session.broker = session.broker_epoch = NO_BROKER
        image = self._image
        if not nonce or not image.secret or request.node < 0:
            return IntroductionResponse(_REFUSED)
        node, epoch = request.node, request.broker_epoch
        expected = prove(image.secret, image.cluster_id, nonce, self._node, node, epoch)
        if not hmac.compare_digest(expected, request.proof):
            return IntroductionResponse(_REFUSED)
        session.broker, session.broker_epoch = node, epoch
        return IntroductionResponse()
