"""One page of metrics from those of several workers: the same families, each sample with the worker's label."""

from collections.abc import Mapping

_HELP, _TYPE = "# HELP ", "# TYPE "


def merged_metrics(pages: Mapping[int, str]) -> str:
    """Prometheus text, by broker id; a family is named once, however many workers have it."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for broker, page in pages.items():
        family = ""
        for line in page.splitlines():
            if line.startswith((_HELP, _TYPE)):
                family = line.split(" ", 3)[2]
                head = heads.setdefault(family, [])
                if not any(known.startswith(line[: len(_HELP)]) for known in head):
                    head.append(line)
            elif line and not line.startswith("#"):
                samples.setdefault(family, []).append(labelled(line, broker))
    lines = []
    for family, each in samples.items():
        lines += [*heads.get(family, ()), *each]
    return "".join(f"{line}\n" for line in lines)


def labelled(sample: str, broker: int) -> str:
    """`name{a="b"} 1` with one label more, in the first place."""
    brace, space = sample.find("{"), sample.find(" ")
    if 0 <= brace < space:
        return f'{sample[: brace + 1]}broker="{broker}",{sample[brace + 1 :]}'
    return f'{sample[:space]}{{broker="{broker}"}}{sample[space:]}'
