"""Control records that end a transaction.

Key: version int16 | type int16 (0 abort, 1 commit; others mean other things)
"""

import struct

_KEY = struct.Struct(">hh")
_ABORT, _COMMIT = 0, 1


def transaction_end(key: bytes | None) -> bool | None:
    """True: committed, False: aborted, None: of another kind."""
    if key is None or len(key) < _KEY.size:
        return None
    _, kind = _KEY.unpack_from(key)
    return {_ABORT: False, _COMMIT: True}.get(kind)


def transaction_end_key(*, committed: bool) -> bytes:
    return _KEY.pack(0, _COMMIT if committed else _ABORT)
