"""Writes what is generated: `python tools/gen_docs.py [config|protocol|groups|…]...`; without names, all."""

import sys
from collections.abc import Callable
from pathlib import Path

from dashboard import dashboard_page
from ecosystem import page as ecosystem_page
from penstock.config.reference import configuration_page
from penstock.frontends.kafka.reference import protocol_page
from penstock.groups.reference import groups_page
from penstock.groups.transactions.reference import transactions_page

ROOT = Path(__file__).resolve().parent.parent
PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "config": ("docs/configuration.md", configuration_page),
    "protocol": ("docs/protocol.md", protocol_page),
    "groups": ("docs/groups.md", groups_page),
    "transactions": ("docs/transactions.md", transactions_page),
    "ecosystem": ("docs/ecosystem.md", ecosystem_page),
    "dashboard": ("packaging/grafana/penstock.json", dashboard_page),
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in PAGES]
    if unknown:
        print(f"no such page: {', '.join(unknown)}; there are {', '.join(PAGES)}", file=sys.stderr)
        return 2
    for name in names or PAGES:
        file, page = PAGES[name]
        (ROOT / file).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
