"""What goes wrong in a simulated run: the first failure ends it, told with the seed and with who waits for what."""

from typing import TYPE_CHECKING

from penstock.testing.sim_host import Host

if TYPE_CHECKING:
    from penstock.testing.sim_loop import SimLoop


class SimulationError(Exception):
    """The run broke a rule of the simulation; the message has the seed to replay it with."""


class Deadlock(SimulationError):  # noqa: N818 - the word says it
    """Nothing is scheduled and the awaited future is not done: it never will be."""


class Failures:
    def __init__(self, loop: "SimLoop", hosts: list[Host]) -> None:
        """`hosts` is looked at, not copied."""
        self._loop = loop
        self._hosts = hosts
        self.noted: list[tuple[str, BaseException | None]] = []

    def note(self, message: str, cause: BaseException | None) -> None:
        """For the next who raises: here nobody would hear of it."""
        self.noted.append((message, cause))

    def look_for_unretrieved(self) -> None:
        for host in self._hosts:
            for task in host.unretrieved() if host.alive else ():
                self.note("a task failed and nobody asked", task.exception())

    def raise_first(self) -> None:
        if self.noted:
            message, cause = self.noted[0]
            self.noted.clear()
            raise self.error(SimulationError, message) from cause

    def error(self, kind: type[SimulationError], message: str) -> SimulationError:
        loop = self._loop
        waiting = [
            f"{host.name}: {task!r}" for host in self._hosts if host.alive for task in host.unfinished_tasks()
        ]
        lines = [f"seed {loop.seed}, {loop.time():.6f} s, step {loop.steps}: {message}"]
        return kind("\n  ".join([*lines, *waiting[:10]]))
