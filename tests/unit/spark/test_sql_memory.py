"""Where a query keeps its checkpoint."""

import shutil
from pathlib import Path

import pytest

from penstock.spark.pipelines.sql.memory import checkpoint_location, forget
from penstock.spark.pipelines.sql.settings import SqlUseError, parse_settings

QUERY = "SELECT * FROM orders"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE_DIR", str(tmp_path))


def place(query: str = QUERY, to: str = "topic:out", bootstrap: str = "b:1") -> str:
    return checkpoint_location(parse_settings(query, to=to), bootstrap, "local[*]").uri


def test_one_per_query_target_and_broker(tmp_path: Path) -> None:
    assert place() == place()
    assert len({place(), place(QUERY + " WHERE id > 1"), place(to="topic:two"), place(bootstrap="b:2")}) == 4
    assert Path(place()).parent == tmp_path / "checkpoints"


def test_the_screen_forgets() -> None:
    first = checkpoint_location(parse_settings(QUERY), "b:1", "local[*]")
    second = checkpoint_location(parse_settings(QUERY), "b:1", "local[*]")
    try:
        assert first.temporary
        assert first.uri != second.uri
        forget(first)
        assert not Path(first.uri).exists()
    finally:
        shutil.rmtree(second.uri)


def test_a_place_that_was_given_is_kept(tmp_path: Path) -> None:
    given = checkpoint_location(parse_settings(QUERY, checkpoint=f"{tmp_path}/c/"), "b:1", "local[*]")
    assert (given.uri, given.temporary) == (f"{tmp_path}/c", False)
    tmp_path.joinpath("c").mkdir()
    forget(given)
    assert tmp_path.joinpath("c").exists()


def test_a_cluster_needs_a_place_that_all_reach() -> None:
    with pytest.raises(SqlUseError, match="needs --checkpoint"):
        checkpoint_location(parse_settings(QUERY, to="topic:out"), "b:1", "spark://host:7077")
