"""`python -m tests.clients.oracle`: compare, and print what differs."""

from __future__ import annotations

import argparse
import sys

from tests.clients.oracle.accepted import load
from tests.clients.oracle.brokers import compared
from tests.clients.oracle.model import API_NAMES
from tests.clients.oracle.report import sent_text, split, text
from tests.clients.oracle.run import PER_VERSION, run


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.oracle", description=__doc__)
    parser.add_argument("--api", action="append", choices=[*API_NAMES.values(), "Frames"], help="only these")
    parser.add_argument("--version", type=int, action="append", help="only these versions")
    parser.add_argument("--count", type=int, default=PER_VERSION, help="requests per version")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="print at most this many groups")
    parser.add_argument(
        "--right", default="penstock", choices=["penstock", "kafka"], help="compared with Kafka"
    )
    parser.add_argument("--all", action="store_true", help="print accepted differences too")
    return parser.parse_args()


def main() -> int:
    options = _arguments()
    chosen = options.api or [*API_NAMES.values(), "Frames"]
    apis = [key for key, name in API_NAMES.items() if name in chosen]
    accepted = [] if options.all else load()
    with compared(right=options.right) as (left, right):
        result = run(
            left,
            right,
            apis,
            accepted=accepted,
            seed=options.seed,
            count=options.count,
            versions=lambda _, version: not options.version or version in options.version,
            with_frames="Frames" in chosen,
            progress=lambda line: print(line, file=sys.stderr),
        )
    left_over, unused = split(result.findings, accepted)
    print(sent_text(result))
    print(text(left_over, options.limit) or "no differences beyond the accepted ones")
    if not options.api and not options.version and not options.all:
        for entry in unused:
            print(f"accepted, but no longer seen: {entry.api} {entry.path}: {entry.reason}")
    return 1 if left_over else 0


if __name__ == "__main__":
    sys.exit(main())
