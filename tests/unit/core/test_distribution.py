"""Errors about missing extras give a line that works where Penstock was installed from."""

import json
from importlib import metadata

import pytest

from penstock.core.distribution import DISTRIBUTION, install


class Installed:
    def __init__(self, origin: object) -> None:
        self._origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self._origin is None else json.dumps(self._origin)


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (None, "pip install 'penstock-mq[spark,cluster]'"),
        (
            {"url": "file:///home/me/my%20checkout", "dir_info": {"editable": True}},
            "pip install -e '/home/me/my checkout[spark,cluster]'",
        ),
        (
            {"url": "file:///home/me/penstock", "dir_info": {}},
            "pip install '/home/me/penstock[spark,cluster]'",
        ),
        (
            {"url": "file:///tmp/penstock_mq-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install '/tmp/penstock_mq-0.1.0-py3-none-any.whl[spark,cluster]'",
        ),
        (
            {"url": "https://example.org/penstock.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'penstock-mq[spark,cluster] @ git+https://example.org/penstock.git@abc'",
        ),
        (
            {"url": "https://example.org/penstock_mq.whl", "archive_info": {}},
            "pip install 'penstock-mq[spark,cluster] @ https://example.org/penstock_mq.whl'",
        ),
    ],
)
def test_the_line_goes_by_where_the_package_came_from(
    monkeypatch: pytest.MonkeyPatch, origin: object, line: str
) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(origin))
    assert install("spark", "cluster") == line


def test_a_source_tree_that_nobody_installed_names_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert install("arrow") == f"pip install '{DISTRIBUTION}[arrow]'"
