"""Asynchronous generators on a simulated loop: one that is dropped is ended by the process that began it, if alive."""

import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.testing.sim_host import Host

if TYPE_CHECKING:
    from penstock.testing.sim_loop import SimLoop


class AsyncGenerators:
    def __init__(self, loop: "SimLoop", driver: Host) -> None:
        self._loop = loop
        self._driver = driver
        self._begun_by: dict[int, Host] = {}

    @contextmanager
    def noticed(self) -> Iterator[None]:
        """While the loop runs, Python tells of those that begin and of those that are dropped."""
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._begins, finalizer=self._ends)
        try:
            yield
        finally:
            sys.set_asyncgen_hooks(*hooks)

    def _begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._begun_by[id(generator)] = self._loop.current_host()

    def _ends(self, generator: AsyncGenerator[Any, Any]) -> None:
        host = self._begun_by.pop(id(generator), self._driver)
        if host.alive and not self._loop.is_closed():
            host.context.copy().run(self._loop.create_task, generator.aclose())
