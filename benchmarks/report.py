"""The report: tables of ratios and targets, and a plot, from the results on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.cluster import CLUSTER_ROWS
from benchmarks.groups import GROUP_ROWS
from benchmarks.growth import GROWTH_ROWS
from benchmarks.rows import LIMIT, SYNCED, UNSYNCED, Row
from benchmarks.sdk import SDK_ROWS
from benchmarks.spark import SPARK_ROWS

if TYPE_CHECKING:
    from benchmarks.results import Result

DOCS_DIR = Path(__file__).parents[1] / "docs"
PAGE = DOCS_DIR / "benchmarks.md"
PLOT = DOCS_DIR / "benchmarks.png"
SPARK_PLOT = DOCS_DIR / "benchmarks-spark.png"
HEAD = "| | Penstock | Apache Kafka | ratio | target | met |\n|---|---|---|---|---|---|"
SPARK_HEAD = (
    "| | Penstock's source | Spark's Kafka connector | ratio | target | met |\n|---|---|---|---|---|---|"
)
SDK_HEAD = "| | SDK | confluent-kafka | ratio | target | met |\n|---|---|---|---|---|---|"
LIMIT_HEAD = "| | plain loop |\n|---|---|"


class Section(NamedTuple):
    title: str
    remark: str
    rows: tuple[Row, ...]
    head: str = HEAD


SECTIONS = (
    Section(
        "Acknowledged from the page cache",
        "Kafka as it comes; Penstock with `penstock.ack.after=written`.",
        UNSYNCED,
    ),
    Section(
        "Acknowledged after fdatasync",
        "Penstock's default on one node, beside Kafka unsynced and synced.",
        SYNCED,
    ),
    Section(
        "Consumer groups",
        "Members and committers on bare sockets; `group.initial.rebalance.delay.ms=0` on both. Penstock with\n"
        "`penstock.ack.after=written`, since Kafka does not sync either; its default where it says synced.",
        GROUP_ROWS,
    ),
    Section(
        "Cluster",
        "Three brokers of each kind on this one machine, acks=all, three replicas, `min.insync.replicas=2`; Penstock\n"
        "on one ZooKeeper, Kafka with one KRaft controller of its own; sessions of 6 s. 1 GB heap for each of\n"
        "Kafka's. Processor time is that of all processes; the last target is on Penstock's figure.",
        CLUSTER_ROWS,
    ),
    Section(
        "Python SDK",
        "`penstock.Producer` and `penstock.Consumer` beside bare confluent-kafka with the same settings, on one\n"
        "broker, Penstock. The bare producer gives each message an id header and a delivery callback, the bare\n"
        "consumer is a `poll()` loop.",
        SDK_ROWS,
        SDK_HEAD,
    ),
    Section(
        "Spark",
        "The data source `penstock` beside Spark's official Kafka connector, as it comes and tuned\n"
        "(`max.partition.fetch.bytes` 8 MB, `max.poll.records` 5,000, `receive.buffer.bytes` 4 MB): one Spark,\n"
        "`local[2]`, and one broker, Penstock, for all.\n\n"
        "![ratios to Spark's Kafka connector](benchmarks-spark.png)",
        SPARK_ROWS,
        SPARK_HEAD,
    ),
    Section(
        "Growth",
        "One run each, on a broker of its own. Targets with a unit, or of 0 or 1, are on Penstock's figure.",
        GROWTH_ROWS,
    ),
    Section(
        "The machine's own limit",
        "The simplest loop that copies a socket to a file: no protocol, no checks.",
        LIMIT,
        LIMIT_HEAD,
    ),
)
INTRODUCTION = """\
# Benchmarks

Made by `make bench`; do not edit by hand. Penstock and Apache Kafka run on the same machine, take turns under the
same load (C programs in `benchmarks/load/`, on librdkafka or on bare sockets), and are compared by the medians of
their rounds. Kafka is the newest 4.x server with a 1 GB heap and its own defaults, one KRaft node. The ratio is
Penstock ÷ Kafka in that run; the targets are ratios too, because absolute figures depend on the machine. In
brackets: the lowest and the highest round.

![ratios to Apache Kafka](benchmarks.png)
"""
METHOD = """\
## How it is measured
- Each round has a new topic with one partition; every produced message is acknowledged without error, every
  consumed one is checked to be the next offset, every raw answer to be in order and free of errors, or the run
  is void.
- Before each round everything dirty is written to disk and the memory that the round will need is touched once:
  on a virtual machine, free memory may belong to the host, and faulting it in costs more than either broker.
- One round of everybody is thrown away, so that the JVM has compiled its hot paths.
- CPU seconds are the broker's alone (user and system, from `/proc`), per GB of payload.
- End-to-end latency counts from the moment a message was due, so a stall counts against all it delayed.
- Spark: topics of four partitions, written once and read by all contenders in turn; values are half noise, half
  repetition. A read is a job that writes every column to Spark's `noop` format; a write is of rows that Spark makes
  as it goes. Once per contender its rows are counted and hashed over all columns: all agree, or the run is void.
- Groups: a hundred members on a hundred connections, all at once; they do what client libraries do, but never rest, so
  the time is the broker's. The median of ten groups is a round. Commits carry one offset each.
- Cluster: topics of three partitions, one led by each broker. A wiped follower's rate is from the first byte to the
  last. The killed leader is not the controller; the others are asked every few milliseconds to take a message.
- Starts are on a data directory with one topic, up to the first acknowledged message.

Again: `make bench`, or one part of it: `make bench PART=produce` (`consume`, `requests`, `latency`, `start`,
`memory`, `limit`, `groups`, `cluster`, `sdk`, `spark`, `growth`, or one measurement by name); `QUICK=1` and `SCALE=0.1`
to try it in small.
"""


def complete(found: dict[str, Result]) -> bool:
    """True when all who are compared took part in what there is."""
    return bool(found) and all(
        {row.ours, row.theirs or row.ours} <= found[row.measurement].rounds.keys()
        for section in SECTIONS
        for row in section.rows
        if row.measurement in found
    )


def number(value: float) -> str:
    if value >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def figure(result: Result, who: str, row: Row) -> str:
    values = result.values(who, row.metric)
    median = result.median(who, row.metric)
    if median is None:
        return "-"
    spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
    return f"{number(median)} {row.unit}".rstrip() + spread


def judged(result: Result, row: Row) -> float | None:
    """The figure that the row's target is about."""
    if row.absolute or row.theirs is None:
        return result.median(row.ours, row.metric)
    return result.ratio(row.metric, row.ours, row.theirs)


def line(result: Result, row: Row) -> str:
    if row.theirs is None:
        return f"| {row.title} | {figure(result, row.ours, row)} |"
    ratio = result.ratio(row.metric, row.ours, row.theirs)
    value = judged(result, row)
    verdict = "" if row.target is None or value is None else ("yes" if row.met(value) else "**no**")
    cells = (
        row.title,
        figure(result, row.ours, row),
        figure(result, row.theirs, row),
        "-" if ratio is None else f"{ratio:.2f}",
        row.target_text,
        verdict,
    )
    return f"| {' | '.join(cells)} |"


def tables(found: dict[str, Result]) -> str:
    parts = []
    for section in SECTIONS:
        lines = [line(found[row.measurement], row) for row in section.rows if row.measurement in found]
        if lines:
            head = f"## {section.title}\n{section.remark}\n\n{section.head}\n"
            parts.append(head + "\n".join(lines) + "\n")
    return "\n".join(parts)


def circumstances(found: dict[str, Result]) -> str:
    machine = next(iter(found.values())).machine
    dates = sorted({result.date for result in found.values()})
    versions = found[max(found, key=lambda key: found[key].date)].versions
    spark = next((result.versions for result in found.values() if "pyspark" in result.versions), None)
    with_spark = f", PySpark {spark['pyspark']} and its connector {spark['connector']}" if spark else ""
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return (
        "## Where and when\n"
        f"- {when}; Penstock {versions['penstock']} ({versions['python']}), Apache Kafka {versions['kafka']} "
        f"({versions['java']}), load through librdkafka {versions['librdkafka']}{with_spark}\n"
        f"- {machine['cpu']}; {machine['memory']} memory; {machine['system']}; load and brokers share the machine\n"
    )


def write(found: dict[str, Result]) -> list[str]:
    """Write the page and its plots; the paths written."""
    written = [PAGE, PLOT]
    replicated = [row for row in CLUSTER_ROWS if not row.absolute]
    plot(found, (*UNSYNCED, *GROUP_ROWS, *replicated, *SYNCED), "Apache Kafka", PLOT)
    if any(row.measurement in found for row in SPARK_ROWS):
        plot(found, SPARK_ROWS, "Spark's Kafka connector", SPARK_PLOT)
        written.append(SPARK_PLOT)
    PAGE.write_text("\n".join((INTRODUCTION, tables(found), METHOD, circumstances(found))))
    return [str(path.relative_to(DOCS_DIR.parent)) for path in written]


def plot(found: dict[str, Result], rows: tuple[Row, ...], other: str, path: Path) -> None:
    """Bars of Penstock's advantage: the ratio, turned over where lower is better, on a logarithmic scale."""
    # Imported here: measuring and reading results must work without matplotlib.
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    bars = []
    for row in rows:
        result = found.get(row.measurement)
        ratio = result.ratio(row.metric, row.ours, row.theirs or "") if result else None
        if ratio and row.target:
            invert = not row.higher_is_better
            advantage, wanted = (1 / ratio, 1 / row.target) if invert else (ratio, row.target)
            title = f"synced: {row.title}" if row in SYNCED else row.title
            bars.append((title.replace("`", ""), advantage, wanted))
    bars.reverse()
    drawing, axes = plt.subplots(figsize=(10, 0.38 * len(bars) + 1.4))
    colours = ["#2a7f62" if advantage >= wanted else "#b5483a" for _title, advantage, wanted in bars]
    axes.barh(
        [title for title, _, _ in bars], [advantage for _, advantage, _ in bars], color=colours, height=0.6
    )
    for at, (_title, advantage, wanted) in enumerate(bars):
        axes.plot([wanted, wanted], [at - 0.4, at + 0.4], color="black", linewidth=2)
        axes.text(max(advantage, wanted), at, f"  {advantage:.2f}", va="center", fontsize=8)
    axes.axvline(1, color="grey", linewidth=1)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(y=0.01)
    axes.set_xlim(left=0.5, right=max((max(a, w) for _, a, w in bars), default=1) * 1.6)
    axes.set_xlabel(f"times better than {other} (black: target; log scale)")
    axes.spines[["top", "right"]].set_visible(False)
    drawing.tight_layout()
    drawing.savefig(path, dpi=110)
    plt.close(drawing)
