"""The garbage collector, kept from stopping everybody: what stays is looked at seldom, not again and again.

A full collection walks everything there is, in one go: 80 ms with ten thousand waiting fetches, half a second with a
hundred thousand groups. What has survived one is left out of the next. It is still freed when nobody refers to it any
more; only what refers to itself in a circle stays. Nothing that clients leave behind does (connections and logs
go without a collection: `tests/unit/server/test_collector.py`), and if something should: when what is left out has
doubled and stays so, all of it is walked once.
"""

import gc

# A full collection comes after so many of the middle generation, and so walks some 40,000 objects at most: 20 ms.
_MIDDLE_PER_FULL = 5
_WALKED_MAX = 40_000
# A large request leaves out much for a second or two: what stays is above the limit in each of so many counts, and
# between two of them are so many full collections.
_COUNTS_ABOVE = 3
_COLLECTIONS_BETWEEN = 20
# Fewer objects than that are not worth a look at all of them.
_WORTH_A_LOOK = 500_000


class Collector:
    """Called by `gc` before and after each collection."""

    def __init__(self) -> None:
        self._walk_all_at = _WORTH_A_LOOK
        self._collections_left = 1  # until the next count, which takes as long as there are many objects
        self._counts_above = 0

    def begin(self) -> None:
        """From now on, in this process. What was made until now stays."""
        gc.collect()
        gc.freeze()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, _MIDDLE_PER_FULL)
        gc.callbacks.append(self)

    def end(self) -> None:
        gc.callbacks.remove(self)
        gc.unfreeze()

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase != "stop" or info["generation"] != 2:
            return
        gc.freeze()
        self._collections_left -= 1
        if self._collections_left > 0:
            return
        left_out = gc.get_freeze_count()
        if left_out <= self._walk_all_at:
            self._counts_above = 0
            self._collections_left = max((self._walk_all_at - left_out) // _WALKED_MAX, 1)
            return
        self._counts_above += 1
        self._collections_left = _COLLECTIONS_BETWEEN
        if self._counts_above == _COUNTS_ABOVE:
            gc.unfreeze()  # for the next one
            self._walk_all_at = 2 * left_out
            self._counts_above = 0
