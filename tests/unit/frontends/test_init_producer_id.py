"""InitProducerId as Apache Kafka 4.3 answers it, but for transactions, which are refused."""

import pytest
from tests.unit.frontends.in_memory import Asked, Machine

from penstock.coordination.memory import Fault
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.init_producer_id import InitProducerIdRequest


async def init(asked: Asked, version: int, **fields: object) -> tuple[int, int, int]:
    request = InitProducerIdRequest(**{"transactional_id": None, "transaction_timeout_ms": 60_000, **fields})
    answer = await asked.ask(ApiKey.INIT_PRODUCER_ID, request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
async def test_idempotent_producers_get_a_new_id_each_time(version: int) -> None:
    async with Machine().broker() as asked:
        assert await init(asked, version) == (0, 0, 0)
        assert await init(asked, version, transaction_timeout_ms=-1) == (0, 1, 0)
        if version >= 3:
            assert await init(asked, version, producer_id=0, producer_epoch=5) == (0, 2, 0)
            assert await init(asked, version, producer_id=-2, producer_epoch=-2) == (0, 3, 0)
            assert await init(asked, version, producer_id=5) == (ErrorCode.INVALID_REQUEST, -1, -1)
            assert await init(asked, version, producer_epoch=3) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("version", range(6))
async def test_transactional_producers_are_refused_for_good(version: int) -> None:
    async with Machine().broker() as asked:
        assert await init(asked, version, transactional_id="") == (ErrorCode.INVALID_REQUEST, -1, -1)
        for timeout_ms in (0, -1, 900_001):
            answer = await init(asked, version, transactional_id="tx", transaction_timeout_ms=timeout_ms)
            assert answer == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await init(asked, version, transactional_id="tx") == (refused, -1, -1)


async def test_no_id_is_given_twice_across_a_kill() -> None:
    machine = Machine()
    async with machine.broker() as asked:
        _, before, _ = await init(asked, 5)
    async with machine.broker() as asked:
        _, after, _ = await init(asked, 5)
    assert after > before


async def test_a_store_that_does_not_answer_makes_clients_come_back() -> None:
    async with Machine().broker() as asked:
        asked.tree.fail_next(Fault.REQUEST_LOST)
        assert await init(asked, 5) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
        assert (await init(asked, 5))[0] == 0
