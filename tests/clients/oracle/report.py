"""Differences in groups, as few lines as will do."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.clients.oracle.accepted import Accepted
    from tests.clients.oracle.run import Finding, Result

IN_BRACKETS = re.compile(r"\[([^\]]*)\]")
SHOWN = 6


@dataclass
class Group:
    """Findings that one change is likely to mend."""

    api: str
    path: str
    left: str
    right: str
    findings: list[Finding] = field(default_factory=list)

    @property
    def versions(self) -> str:
        found = sorted({finding.version for finding in self.findings})
        return f"v{found[0]}" if len(found) == 1 else f"v{found[0]}-{found[-1]}"

    @property
    def names(self) -> list[str]:
        """The named entries of a list that the group runs over."""
        named = {name for finding in self.findings for name in IN_BRACKETS.findall(finding.path) if name}
        return sorted(named)

    @property
    def labels(self) -> list[str]:
        return sorted({finding.label for finding in self.findings})


def grouped(findings: list[Finding]) -> list[Group]:
    groups: dict[tuple[str, str, str, str], Group] = {}
    for finding in findings:
        key = (
            finding.api,
            IN_BRACKETS.sub("[]", finding.path),
            finding.left_class,
            finding.right_class,
        )
        groups.setdefault(key, Group(*key)).findings.append(finding)
    return sorted(groups.values(), key=lambda group: (group.api, -len(group.findings)))


def split(findings: list[Finding], accepted: list[Accepted]) -> tuple[list[Finding], list[Accepted]]:
    """What no entry covers, and the entries that cover nothing."""
    used: set[int] = set()
    left_over = []
    for finding in findings:
        covering = [number for number, entry in enumerate(accepted) if entry.covers(finding)]
        used.update(covering)
        if not covering:
            left_over.append(finding)
    return left_over, [entry for number, entry in enumerate(accepted) if number not in used]


def text(findings: list[Finding], limit: int | None = None, *, examples: bool = True) -> str:
    lines = []
    groups = grouped(findings)
    for group in groups[:limit]:
        lines.append(
            f"{group.api} {group.versions} {group.path}: kafka {group.left} | penstock {group.right}"
            f"  ({len(group.findings)}x)"
        )
        if group.names:
            lines.append(f"    of {_listed(group.names)}")
        lines.append(f"    in {_listed(group.labels)}")
        if examples:
            example = group.findings[0]
            lines.append(f"    e.g. v{example.version} {example.request}")
            if _shortened(example):
                lines.append(f"    kafka {example.left!r:.300}")
                lines.append(f"    penstock {example.right!r:.300}")
    if limit is not None and len(groups) > limit:
        lines.append(f"… and {len(groups) - limit} more groups")
    return "\n".join(lines)


def _shortened(finding: Finding) -> bool:
    return any(str(value) != shown for value, shown in _values(finding))


def _values(finding: Finding) -> list[tuple[object, str]]:
    return [(finding.left, finding.left_class), (finding.right, finding.right_class)]


def _listed(items: list[str]) -> str:
    more = f" … +{len(items) - SHOWN}" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more


def sent_text(result: Result) -> str:
    per_api: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (api, _version, valid), count in result.sent.items():
        per_api[api][0 if valid else 1] += count
    rows = [f"{api} {good}+{bad}" for api, (good, bad) in sorted(per_api.items())]
    return "requests compared (good + bad): " + ", ".join(rows)
