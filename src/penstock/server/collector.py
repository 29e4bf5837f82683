"""The garbage collector, kept from stopping everybody: it looks at what stays once, not again and again.

A full collection walks everything there is, in one go: 80 ms with ten thousand waiting fetches, half a second with a
hundred thousand groups. What has survived one is left out of the next. It is still freed when nobody refers to it any
more; only what refers to itself in a circle would stay, and nothing that clients make and leave behind does:
connections, requests, groups and logs go without a collection (`tests/unit/server/test_collector.py`).
"""

import gc

# A full collection comes after so many of the middle generation, and so walks some 40,000 objects at most: 20 ms.
_MIDDLE_PER_FULL = 5


def freeze_survivors() -> None:
    """From now on, in this process. What was made until now stays."""
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _MIDDLE_PER_FULL)
    if _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
