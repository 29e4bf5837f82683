"""What older versions are told instead: errors that came later, in the words that they know."""

from enum import Enum

from penstock.core.error_codes import ErrorCode


class Api(Enum):
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    END = "EndTxn"


# The first version that knows PRODUCER_FENCED.
_FENCED_SINCE = {Api.INIT_PRODUCER_ID: 4, Api.ADD_PARTITIONS: 2, Api.ADD_OFFSETS: 2, Api.END: 2}


def error_for(error: ErrorCode, api: Api, version: int) -> ErrorCode:
    """To its clients until then a producer that was replaced has an invalid epoch: both are fatal to them."""
    if error is ErrorCode.PRODUCER_FENCED and version < _FENCED_SINCE[api]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
