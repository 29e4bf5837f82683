"""`penstock verify`: proof that all replicas are the same, or where they are not."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.command import Session, command
from penstock.cli.errors import FAILED, CommandError, WrongUseError
from penstock.cli.output import print_json, print_table
from penstock.cli.verify_advice import Advice, advice_on, tell
from penstock.core.text import count_text, size_text

if TYPE_CHECKING:
    from penstock.client.admin.cluster_info import ClusterInfo
    from penstock.client.topic_partition import TopicPartition
    from penstock.diagnosis.replica_verify import Verdict

_LINES_MAX = 20


def register(app: typer.Typer) -> None:
    command(
        app,
        "verify",
        examples=(
            "penstock verify",
            "penstock verify orders",
            "penstock verify --data-dir /var/lib/penstock",
        ),
    )(verify)


def verify(
    session: Session,
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="Only this one (default: all).", show_default=False),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Check the files of a broker that is stopped, instead of asking a cluster."),
    ] = None,
) -> None:
    """Read every replica below the high watermark and see that all are byte for byte the same.

    Copies of compacted topics are compared record by record, where two have the same offset: each broker compacts for
    itself. Exit code 1: a replica differs, is damaged, or could not be read.
    """
    if data_dir is not None:
        from penstock.cli.verify_data import verify_data_dir

        if topic is not None:
            raise WrongUseError("give a topic or --data-dir, not both")
        verify_data_dir(session, data_dir)
        return
    verdicts = _verdicts(session, topic)
    now = _looked_again(session) if any(verdict.differences for verdict in verdicts) else None
    advices = {verdict.place: advice for verdict in verdicts if (advice := advice_on(verdict, now))}
    if session.json:
        print_json(
            {
                "identical": all(verdict.is_identical for verdict in verdicts),
                "partitions": [_as_json(verdict, advices.get(verdict.place)) for verdict in verdicts],
            }
        )
    else:
        _print(verdicts)
    if advices:
        tell(list(advices.values()))
        raise typer.Exit(FAILED)


def _verdicts(session: Session, topic: str | None) -> "list[Verdict]":
    from penstock.cli.progress import Bar
    from penstock.client.admin.brokers import ClusterAdmin
    from penstock.client.connect import reach
    from penstock.diagnosis.replica_verify import Verifier

    reach(session.bootstrap)
    with ClusterAdmin(session.bootstrap) as admin:
        found = admin.look()
    places = _chosen(found, topic)
    total = sum(found.size_of(place) for place in places)
    verifier = Verifier(session.bootstrap)
    verdicts: list[Verdict] = []
    done = 0

    def told(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        bar.show(min(done, total), total, f"{len(verdicts)} of {count_text(len(places), 'partition')}")

    try:
        compacted = verifier.compacted({place.topic: None for place in places})
        with Bar("comparing replicas", quiet=session.json) as bar:
            for place in places:
                verdicts.append(verifier.verify(found, place, told, compacted=place.topic in compacted))
                told(0)
    finally:
        verifier.close()
    return verdicts


def _looked_again(session: Session) -> "ClusterInfo | None":
    """Copies take long to read, and whoever was in sync when that began may have fallen behind; None: no answer."""
    from penstock.client.admin.brokers import ClusterAdmin
    from penstock.client.raw.errors import RawError

    try:
        with ClusterAdmin(session.bootstrap) as admin:
            return admin.look()
    except RawError:
        return None


def _chosen(found: "ClusterInfo", topic: str | None) -> "list[TopicPartition]":
    places = [place for place in found.partitions if topic is None or place.topic == topic]
    if topic is not None and not places:
        raise CommandError(f"there is no topic {topic}: see `penstock topic list`")
    return places


def _print(verdicts: "list[Verdict]") -> None:
    if not verdicts:
        print("no topics yet, so there is nothing to compare")
        return
    topics: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        topics.setdefault(verdict.place.topic, []).append(verdict)
    print_table(
        ("topic", "partitions", "copies", "offsets", "compared", "result"),
        [
            (
                name,
                len(each),
                max(len(verdict.compared) + len(verdict.unread) + _broken(verdict) for verdict in each),
                sum(verdict.end - verdict.start for verdict in each),
                size_text(sum(verdict.size_bytes for verdict in each)),
                _result(each),
            )
            for name, each in topics.items()
        ],
    )
    lines = [
        *(
            f"{verdict.place} differs at offset {what.offset} on broker {what.broker}: {what.why}"
            for verdict in verdicts
            for what in verdict.differences
        ),
        *_unread_lines(verdicts),
    ]
    for line in lines[:_LINES_MAX]:
        print(line)
    if len(lines) > _LINES_MAX:
        print(f"and {len(lines) - _LINES_MAX} more; --json has them all")


def _unread_lines(verdicts: "list[Verdict]") -> list[str]:
    """One for each broker and reason: a broker that is missing is missed by all its partitions."""
    places: dict[tuple[int, str], list[TopicPartition]] = {}
    for verdict in verdicts:
        for broker, why in verdict.unread.items():
            places.setdefault((broker, why), []).append(verdict.place)
    return [
        f"broker {broker} could not be read: {why} ({_named(each)})"
        for (broker, why), each in sorted(places.items())
    ]


def _named(places: "list[TopicPartition]") -> str:
    return str(places[0]) if len(places) == 1 else f"{places[0]} and {len(places) - 1} more partitions"


def _broken(verdict: "Verdict") -> int:
    return len({what.broker for what in verdict.differences} - set(verdict.compared))


def _result(each: "list[Verdict]") -> str:
    differing = sum(bool(verdict.differences) for verdict in each)
    unread = sum(bool(verdict.unread) for verdict in each)
    if differing:
        return f"{differing} differ" if differing > 1 else "1 differs"
    return f"{unread} not compared" if unread else "identical"


def _as_json(verdict: "Verdict", advice: Advice | None) -> dict[str, Any]:
    return {
        "topic": verdict.place.topic,
        "partition": verdict.place.partition,
        "start": verdict.start,
        "end": verdict.end,
        "size_bytes": verdict.size_bytes,
        "brokers": list(verdict.compared),
        "whole": list(verdict.whole),
        "compacted": verdict.is_compacted,
        "differences": [what._asdict() for what in verdict.differences],
        "unread": [{"broker": broker, "why": why} for broker, why in verdict.unread.items()],
        "advice": None if advice is None else advice.as_json(),
    }
