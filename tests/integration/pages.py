"""The pages of docs/ as tests see them: their sections, their links, and their commands, run as written."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.integration.commands import environment

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def blocks(text: str, language: str = "sh") -> list[tuple[str, str]]:
    """Of a page, its code in this language: (what else stands behind the language, the code)."""
    found = re.findall(rf"^```{language}( [a-z-]+)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(kind.strip(), code) for kind, code in found]


def anchors(text: str) -> set[str]:
    """What links to sections of a page may end with, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def links(text: str) -> list[str]:
    """Where a page leads to, but for other sites."""
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in target]


def run(command: str, place: Path, bootstrap: str) -> str:
    """A command of a page in the directory `place`, with this Python's `penstock`; it has to succeed."""
    own = f"{shlex.quote(sys.executable)} -m penstock.cli.main"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", re.sub(r"(^|\| )penstock\b", rf"\1{own}", command)],
        env=environment(bootstrap),
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
