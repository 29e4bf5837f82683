"""The garbage collector, kept from stopping everybody: what stays is looked at seldom, not again and again.

A full collection walks everything there is, in one go: 80 ms with ten thousand waiting fetches, half a second with a
hundred thousand groups. What has survived one is left out of the next. It is still freed when nobody refers to it any
more; only what refers to itself in a circle stays. Nothing that clients leave behind does (connections and logs
go without a collection: `tests/unit/server/test_collector.py`), and if something should: when what is left out has
doubled, all of it is walked once.
"""

import gc

# A full collection comes after so many of the middle generation, and so walks some 40,000 objects at most: 20 ms.
_MIDDLE_PER_FULL = 5
# Fewer objects than that are not worth a look at all of them.
_WORTH_A_LOOK = 500_000


class Collector:
    """Called by `gc` before and after each collection."""

    def __init__(self) -> None:
        self._walk_all_at = _WORTH_A_LOOK

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
        left_out = gc.get_freeze_count()
        gc.freeze()
        if not left_out:  # everything was walked
            self._walk_all_at = max(_WORTH_A_LOOK, 2 * gc.get_freeze_count())
        elif gc.get_freeze_count() > self._walk_all_at:
            gc.unfreeze()  # for the next one
