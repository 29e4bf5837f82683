"""`penstock why NAME`: whether the name is a group's or a topic's."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.why import _watch
from penstock.client.errors import ClientError


class Names:
    """An admin of a cluster with these names."""

    def __init__(self, groups: list[str] | None, topics: list[str]) -> None:
        self._groups, self._topics = groups, topics
        self.described: list[str] = []

    def groups(self) -> list[Any]:
        if self._groups is None:
            raise ClientError("a broker does not answer")
        return [SimpleNamespace(name=name) for name in self._groups]

    def topics(self) -> list[Any]:
        return [SimpleNamespace(name=name) for name in self._topics]

    def describe_group(self, name: str) -> Any:
        self.described.append(name)
        if name not in (self._groups or ["orders"]):
            raise ClientError(f"there is no group {name}")
        return SimpleNamespace(name=name)


def test_a_topic_that_is_no_group_is_not_looked_for_among_groups() -> None:
    """Where nobody can coordinate groups yet, such a question takes half a minute."""
    admin: Any = Names(groups=["billing"], topics=["orders"])
    assert _watch(admin, "orders", 0) is None
    assert admin.described == []


@pytest.mark.parametrize("groups", [["orders"], None])
def test_a_group_comes_before_the_topic_of_its_name_also_where_the_list_lacks_some(
    groups: list[str] | None,
) -> None:
    admin: Any = Names(groups, topics=["orders"])
    assert _watch(admin, "orders", 0) is not None


def test_what_is_neither_is_said() -> None:
    admin: Any = Names(groups=[], topics=["orders"])
    with pytest.raises(ClientError, match="there is no group payments"):
        _watch(admin, "payments", 0)
