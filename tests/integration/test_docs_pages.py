"""Pages of docs/ do what they say: their commands are run as written, and their links lead somewhere.

A block marked `sh` is run beside a broker with a topic and a group, one marked `sh stopped` while that is stopped.
docs/cluster.md, docs/sdk.md, docs/pipelines.md and the README have tests of their own.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.pages import DOCS, ROOT, anchors, blocks, links, run

from penstock.testing import BrokerProcess

PAGES = ("configure", "runbook", "sizing", "monitoring", "troubleshooting")
LINKED = sorted(DOCS.glob("*.md")) + [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md", "packaging/README.md")
]
# What the pages speak of.
BEFORE = (
    "penstock topic create orders --partitions 3",
    "seq 1 20 | penstock produce orders",
    "penstock consume orders --group billing --from-beginning --max 10",
)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Its data is in the directory `data`."""
    process = BrokerProcess(tmp_path / "data")
    process.start()
    try:
        yield process
    finally:
        process.stop()


def beside(process: BrokerProcess, command: str) -> str:
    """What stands on a page for the default ports, for this broker's; its console has another after every start."""
    if command.startswith("penstock doctor"):
        command += f" --console-port {process.console_url.rpartition(':')[2]}"
    return run(command, process.data_dir.parent, process.bootstrap)


@pytest.mark.parametrize("name", PAGES)
def test_the_commands_run_as_written(broker: BrokerProcess, name: str) -> None:
    if name != "configure":  # which makes the topic itself
        for command in BEFORE:
            beside(broker, command)
    found = [
        (kind, code) for kind, code in blocks((DOCS / f"{name}.md").read_text()) if "cluster" not in kind
    ]
    assert found, "a page without commands needs no test"
    done: set[tuple[str, str]] = set()
    for kind, code in found:
        assert kind in {"", "stopped"}, f"nobody knows how to run `sh {kind}`"
        if kind == "stopped":
            broker.stop()
        elif not broker.is_running:
            broker.start()
        for command in code.splitlines():
            if (kind, command) not in done:  # pages say the same more than once
                beside(broker, command)
                done.add((kind, command))


def test_what_programs_are_quoted_with_is_what_they_say() -> None:
    """The first column of the tables of troubleshooting.md: each piece stands somewhere in the source."""
    page = (DOCS / "troubleshooting.md").read_text()
    sources = "\n".join(path.read_text() for path in (ROOT / "src" / "penstock").rglob("*.py"))
    told = re.sub(r'"\s*f?"|\{[^}]*\}', "", sources)
    rows = re.findall(r"^\| ([^|]*`[^|]*) \|", page, re.MULTILINE)
    quotations = [quoted for row in rows for quoted in re.findall(r"`([^`]*)`", row)]
    assert len(quotations) >= 10
    for quoted in quotations:
        for piece in quoted.removesuffix("_total").split("…"):
            assert piece.strip() in told or piece.strip() in sources, f"nothing says {piece!r}"


@pytest.mark.parametrize("page", LINKED, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page.read_text()):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} leads to {link}, which is not there"
        if anchor:
            assert anchor in anchors(target.read_text()), f"{target.name} has no section {anchor}"


def test_every_page_is_in_the_index() -> None:
    listed = {link.partition("#")[0] for link in links((DOCS / "README.md").read_text())}
    assert {page.name for page in DOCS.glob("*.md")} - {"README.md"} <= listed
