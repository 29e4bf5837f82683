"""What readers and writers share: fixed-width layouts, runs of fields, version conditions, minimal sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.codegen.schema import Field, Struct

# kind: (struct code, size, Python type)
FIXED = {
    "bool": ("?", 1, "bool"),
    "int8": ("b", 1, "int"),
    "int16": ("h", 2, "int"),
    "uint16": ("H", 2, "int"),
    "int32": ("i", 4, "int"),
    "int64": ("q", 8, "int"),
    "float64": ("d", 8, "float"),
    "uuid": ("16s", 16, "bytes"),
}
_PYTHON_TYPES = {"string": "str", "bytes": "bytes", "records": "memoryview | bytes"}
# (legacy, flexible) bytes of the shortest value
_SHORTEST = {"string": (2, 1), "bytes": (4, 1), "records": (4, 1)}


@dataclass
class Scope:
    """One struct in one form: what a pair of `_read_…` and `_write_…` functions covers."""

    struct: Struct
    versions: set[int]
    flexible: bool
    layouts: set[tuple[str, str]] = field(default_factory=set)
    constants: list[str] = field(default_factory=list)

    def fields(self) -> list[Field]:
        return [item for item in self.struct.fields if item.versions & self.versions]

    def plain_fields(self) -> list[Field]:
        return [item for item in self.fields() if item.tag is None]

    def tagged_fields(self) -> list[Field]:
        return sorted(
            (item for item in self.fields() if item.tag is not None), key=lambda item: item.tag or 0
        )

    def missing_fields(self) -> list[Field]:
        return [item for item in self.struct.fields if not item.versions & self.versions]

    def condition(self, versions: set[int]) -> str | None:
        """The test for `versions` inside this scope; None when it always holds."""
        wanted = versions & self.versions
        if wanted == self.versions:
            return None
        low, high = min(wanted), max(wanted)
        assert wanted == {version for version in self.versions if low <= version <= high}
        if high == max(self.versions):
            return f"version >= {low}"
        if low == min(self.versions):
            return f"version <= {high}"
        if low == high:
            return f"version == {low}"
        return f"{low} <= version <= {high}"

    def runs(self) -> list[list[Field]]:
        """The plain fields in order; neighbours of fixed width that share their versions stand together."""
        runs: list[list[Field]] = []
        for item in self.plain_fields():
            joins = runs and is_fixed(item) and is_fixed(runs[-1][-1])
            if joins and item.versions & self.versions == runs[-1][-1].versions & self.versions:
                runs[-1].append(item)
            else:
                runs.append([item])
        return runs

    def layout(self, run: list[Field]) -> tuple[str, int]:
        """The name of the run's precompiled layout, and its size."""
        codes = "".join(FIXED[item.kind][0] for item in run)
        name = "_LAYOUT_" + codes.replace("16s", "u").replace("?", "t")
        self.layouts.add((name, codes))
        return name, sum(FIXED[item.kind][1] for item in run)


def is_fixed(item: Field) -> bool:
    return item.kind in FIXED and not item.is_array


def is_flexible_part(versions: set[int], flexible_since: int | None, flexible: bool) -> set[int]:
    return {v for v in versions if (flexible_since is not None and v >= flexible_since) == flexible}


def element_type(item: Field) -> str:
    if item.struct is not None:
        return item.struct.class_name
    return FIXED[item.kind][2] if item.kind in FIXED else _PYTHON_TYPES[item.kind]


def python_type(item: Field) -> str:
    inner = f"list[{element_type(item)}]" if item.is_array else element_type(item)
    return f"{inner} | None" if item.nullable or item.default is None else inner


def shortest_element(item: Field, versions: set[int], flexible: bool) -> int:
    """The fewest bytes one element of an array can take; at least one, so that every count is bounded."""
    if item.struct is not None:
        return max(1, min(_shortest_struct(item.struct, version, flexible) for version in versions))
    return FIXED[item.kind][1] if item.kind in FIXED else _SHORTEST[item.kind][flexible]


def _shortest_struct(struct: Struct, version: int, flexible: bool) -> int:
    fields = [item for item in struct.fields if version in item.versions and item.tag is None]
    return sum(_shortest_field(item, version, flexible) for item in fields) + flexible


def _shortest_field(item: Field, version: int, flexible: bool) -> int:
    if item.is_array:
        return 1 if flexible else 4
    if item.struct is not None:
        return 1 if version in item.nullable else _shortest_struct(item.struct, version, flexible)
    return FIXED[item.kind][1] if item.kind in FIXED else _SHORTEST[item.kind][flexible]


def literal(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def signature(name: str, parameters: str, result: str) -> list[str]:
    line = f"def {name}({parameters}) -> {result}:"
    if len(line) <= 110:
        return [line]
    return [f"def {name}(", f"    {parameters}", f") -> {result}:"]
