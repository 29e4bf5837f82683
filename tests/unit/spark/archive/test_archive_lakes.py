"""Retention waits for one lake: what another one has is not told (SPEC A4)."""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from types import SimpleNamespace

import pytest
from tests.unit.spark.archive.faulty_lake import MemoryLake, Steps

from penstock.client.raw import TopicInfo, TopicPartition
from penstock.core.archive_progress import ArchiveProgress
from penstock.spark.pipelines.archive.errors import ConflictError, ManifestError
from penstock.spark.pipelines.archive.lake_id import LAKE_FILE, lake_id
from penstock.spark.pipelines.archive.source import PROGRESS, REQUIRED, Source

ID = uuid.uuid4()
TOPIC = TopicInfo("orders", ID, (0,), False)


class Admin:
    """The settings of a topic."""

    def __init__(self) -> None:
        self.configs = {REQUIRED: "true"}
        self.told: list[str] = []

    def describe(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(configs=self.configs)

    def alter_configs(self, _: str, changes: Mapping[str, str]) -> None:
        self.configs |= changes
        self.told.append(changes[PROGRESS])


@pytest.fixture
def admin() -> Admin:
    return Admin()


@pytest.fixture
def source(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> Iterator[Source]:
    with closing(Source("127.0.0.1:1", ["orders"])) as source:
        source._admin = admin  # type: ignore[assignment]
        monkeypatch.setattr(source._client, "topics", lambda: {"orders": TOPIC})
        yield source


def stored(admin: Admin) -> tuple[int, str]:
    progress = ArchiveProgress.parse(admin.configs[PROGRESS])
    assert progress is not None
    return progress.next_offsets[0], progress.lake


def tell(source: Source, offset: int) -> list[str]:
    return source.tell({"orders": (str(ID), {0: offset})})


def test_another_lake_is_not_told_of_unless_it_takes_over(admin: Admin, source: Source) -> None:
    source.archive_to("production")
    assert tell(source, 60) == []
    source.archive_to("look")
    (said,) = tell(source, 120)
    assert "retention of orders waits for the lake production" in said
    assert "--take-over" in said
    assert stored(admin) == (60, "production")
    source.archive_to("look", take_over=True)
    assert tell(source, 120) == []
    assert stored(admin) == (120, "look")
    assert admin.told[1] == ""  # the broker refuses another lake's while there is one


def test_what_was_taken_over_once_is_not_taken_back(admin: Admin, source: Source) -> None:
    source.archive_to("old", take_over=True)
    assert tell(source, 900) == []
    admin.configs[PROGRESS] = str(ArchiveProgress(ID.bytes, {0: 100}, {}, "new"))  # that one takes over
    (said,) = tell(source, 950)
    assert "retention of orders waits for the lake new" in said
    assert stored(admin) == (100, "new")


@pytest.mark.parametrize("lake", ["production", "look"])
def test_who_owns_the_lake_no_more_tells_nothing(admin: Admin, source: Source, lake: str) -> None:
    source.archive_to("production")
    assert tell(source, 60) == []

    def taken_over() -> None:
        raise ConflictError(lake)

    source.archive_to(lake, take_over=True)
    with pytest.raises(ConflictError):
        source.tell({"orders": (str(ID), {0: 120})}, still_owner=taken_over)
    assert stored(admin) == (60, "production")


def test_what_an_earlier_version_told_is_taken_over(admin: Admin, source: Source) -> None:
    admin.configs[PROGRESS] = str(ArchiveProgress(ID.bytes, {0: 7}))
    source.archive_to("production")
    assert source.progress(["orders"]) == {TopicPartition("orders", 0): 7}
    assert tell(source, 60) == []
    assert stored(admin) == (60, "production")


def test_what_the_broker_believes_of_another_lake_says_nothing_of_this_one(
    admin: Admin, source: Source
) -> None:
    """Else what this lake has beyond it would be taken for lost, and archived again."""
    admin.configs[PROGRESS] = str(ArchiveProgress(ID.bytes, {0: 7}, lake="production"))
    source.archive_to("look")
    assert source.progress(["orders"]) == {}
    source.archive_to("production")
    assert source.progress(["orders"]) == {TopicPartition("orders", 0): 7}


def test_a_lake_keeps_its_id() -> None:
    lake, other = MemoryLake(Steps()), MemoryLake(Steps())
    assert lake_id(lake) == lake_id(lake) != lake_id(other)


@pytest.mark.parametrize("content", [b"{", b'{"format": 1}', b'{"format": 99, "id": "x"}'])
def test_an_id_that_cannot_be_read_is_told(content: bytes) -> None:
    lake = MemoryLake(Steps())
    lake.create(LAKE_FILE, content)
    with pytest.raises(ManifestError, match=r"lake\.json"):
        lake_id(lake)
