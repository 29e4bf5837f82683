"""Emits `_write_…` functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.codegen.layout import FIXED, Scope, is_fixed, signature
from tools.codegen.names import function_name
from tools.codegen.readers import default_value, indented

if TYPE_CHECKING:
    from tools.codegen.schema import Field


def writer(scope: Scope) -> list[str]:
    struct = scope.struct
    suffix = "_flexible" if scope.flexible else ""
    name = f"_write_{function_name(struct)}{suffix}"
    lines = ["", "", *signature(name, f"out: bytearray, m: {struct.class_name}, version: int", "None")]
    body: list[str] = []
    for run in scope.runs():
        write = _write_fixed(scope, run, "out") if is_fixed(run[0]) else _write_field(scope, run[0])
        condition = scope.condition(run[0].versions)
        body += write if condition is None else [f"if {condition}:", *indented(write)]
    body += _tags(scope)
    return lines + indented(body or ["pass"])


def _write_fixed(scope: Scope, run: list[Field], out: str) -> list[str]:
    layout, _ = scope.layout(run)
    values = [f"checked_uuid(m.{f.name})" if f.kind == "uuid" else f"m.{f.name}" for f in run]
    line = f"{out} += {layout}.pack({', '.join(values)})"
    if len(line) < 104:
        return [line]
    return [f"{out} += {layout}.pack(", *[f"    {value}," for value in values], ")"]


def _write_field(scope: Scope, item: Field) -> list[str]:
    """One field of variable width, in the nullable or the plain form, or both where the version decides."""
    value = f"m.{item.name}"
    compact = "compact_" if scope.flexible else ""
    versions = item.versions & scope.versions
    nullable = item.nullable & versions
    some = _write_variable(scope, item, value, "out")
    if not item.nullable and item.default is not None:
        return some
    plain = _write_variable(scope, item, f"present({value})", "out")
    if not nullable:
        return plain
    if item.is_array:
        either = [f"if {value} is None:", f"    write_{compact}count(out, -1)", "else:", *indented(some)]
    elif item.struct is not None:
        some = ['out += b"\\x01"', *some]
        either = [f"if {value} is None:", '    out += b"\\xff"', "else:", *indented(some)]
    else:
        either = _write_variable(scope, item, value, "out", "nullable_")
    condition = Scope(scope.struct, versions, scope.flexible).condition(nullable)
    if condition is None:
        return either
    return [f"if {condition}:", *indented(either), "else:", *indented(plain)]


def _write_variable(scope: Scope, item: Field, value: str, out: str, nullable: str = "") -> list[str]:
    compact = "compact_" if scope.flexible else ""
    if item.is_array:
        return _write_array(scope, item, value, out)
    if item.struct is None:
        kind = "bytes" if item.kind == "records" else item.kind
        return [f"write_{compact}{nullable}{kind}({out}, {value})"]
    return [f"{_struct_writer(scope, item)}({out}, {value}, version)"]


def _write_array(scope: Scope, item: Field, value: str, out: str) -> list[str]:
    compact = "compact_" if scope.flexible else ""
    lines = []
    if value.startswith("present"):
        lines, value = [f"{item.name} = {value}"], item.name
    lines.append(f"write_{compact}count({out}, len({value}))")
    if item.struct is not None:
        name = f"{item.name}_item"
        lines.append(f"for {name} in {value}:")
        lines.append(f"    {_struct_writer(scope, item)}({out}, {name}, version)")
    elif item.kind == "uuid":
        lines.append(f"write_uuids({out}, {value})")
    elif item.kind in FIXED:
        lines.append(f'write_numbers({out}, {value}, "{FIXED[item.kind][0]}")')
    else:
        lines.append(f"write_{compact}{item.kind}s({out}, {value})")
    return lines


def _struct_writer(scope: Scope, item: Field) -> str:
    assert item.struct is not None
    return f"_write_{function_name(item.struct)}{'_flexible' if scope.flexible else ''}"


def _tags(scope: Scope) -> list[str]:
    if not scope.flexible:
        return []
    tagged = scope.tagged_fields()
    if not tagged:
        return ["out.append(0)"]
    lines = ["tags = 0", "section = bytearray()"]
    for item in tagged:
        assert not item.nullable or item.default is None  # so what gets written is not null
        condition = scope.condition(item.versions)
        test = f"{condition} and {_is_set(scope, item)}" if condition else _is_set(scope, item)
        if is_fixed(item):
            write = _write_fixed(scope, [item], "value")
        else:
            write = _write_variable(scope, item, f"m.{item.name}", "value")
        lines += [f"if {test}:", "    tags += 1", "    value = bytearray()", *indented(write)]
        lines += [f"    write_tag(section, {item.tag}, value)"]
    return [*lines, "write_uvarint(out, tags)", "out += section"]


def _is_set(scope: Scope, item: Field) -> str:
    """Only values that differ from the default go on the wire."""
    value = f"m.{item.name}"
    if item.default is None:
        return f"{value} is not None"
    if item.is_array:
        return value
    if item.struct is not None:
        constant = f"_DEFAULT_{function_name(item.struct).upper()}"
        scope.constants.append(f"{constant} = {default_value(item)}")
        return f"{value} != {constant}"
    if item.kind == "bool":
        return f"not {value}" if item.default else value
    return f"{value} != {default_value(item)}"
