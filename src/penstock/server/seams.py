"""Everything a broker touches of the world outside, besides its event loop and the coordination store."""

import random
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from penstock.core.clock import Clock
from penstock.core.files import Files
from penstock.services.maintenance.log_compaction import Round
from penstock.storage.compaction.clean_job import CleanJob
from penstock.storage.compaction.cleaning import CleanRound


@dataclass(frozen=True, slots=True)
class Seams:
    """Everything a broker touches of the world outside."""

    files: Files
    clock: Clock
    rng: random.Random
    executor: Executor | None
    # What computes for long, outside of this process: how a round of compaction is made, and the threads it is asked
    # from; None: those of the executor.
    worker: Executor | None = None
    round_of: Callable[[CleanJob], Round] = CleanRound
    # Whether the loop's transports are sockets of the kernel; those of the simulation are not.
    has_sockets: bool = True
