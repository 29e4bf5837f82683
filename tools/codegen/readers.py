"""Emits `_read_…` functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.codegen.layout import FIXED, Scope, element_type, is_fixed, literal, shortest_element, signature
from tools.codegen.names import function_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from tools.codegen.schema import Field


def reader(scope: Scope) -> list[str]:
    struct = scope.struct
    suffix = "_flexible" if scope.flexible else ""
    name = f"_read_{function_name(struct)}{suffix}"
    result = f"tuple[{struct.class_name}, int]"
    lines = ["", "", *signature(name, "buffer: Buffer, position: int, version: int", result)]
    body = [f"m = {struct.class_name}.__new__({struct.class_name})"]
    for run in scope.runs():
        body += _guarded(scope, run)
    body += [f"m.{item.name} = {default_value(item)}" for item in scope.missing_fields()]
    body += _tags(scope)
    body.append("return m, position")
    return lines + indented(body)


def _guarded(scope: Scope, run: list[Field]) -> list[str]:
    read = _read_fixed(scope, run) if is_fixed(run[0]) else _read_field(scope, run[0])
    condition = scope.condition(run[0].versions)
    if condition is None:
        return read
    defaults = [f"m.{item.name} = {default_value(item)}" for item in run]
    return [f"if {condition}:", *indented(read), "else:", *indented(defaults)]


def _read_fixed(scope: Scope, run: list[Field]) -> list[str]:
    layout, size = scope.layout(run)
    targets = ", ".join(f"m.{item.name}" for item in run)
    unpack = f"{layout}.unpack_from(buffer, position)"
    step = f"position += {size}"
    if len(run) == 1:
        return [f"({targets},) = {unpack}", step]
    if len(targets) + len(unpack) < 100:
        return [f"{targets} = {unpack}", step]
    return ["(", *[f"    m.{item.name}," for item in run], f") = {unpack}", step]


def _read_field(scope: Scope, item: Field) -> list[str]:
    """One field of variable width."""
    if item.is_array:
        return _read_array(scope, item)
    if item.struct is not None:
        return _read_struct(scope, item)
    return _by_nullability(
        scope, item, lambda prefix: f"m.{item.name}, position = read_{prefix}{item.kind}(buffer, position)"
    )


def _by_nullability(scope: Scope, item: Field, line: Callable[[str], str]) -> list[str]:
    """A line in the nullable or the plain form, or both where the version decides."""
    compact = "compact_" if scope.flexible else ""
    versions = item.versions & scope.versions
    nullable = item.nullable & versions
    if not nullable:
        return [line(compact)]
    condition = Scope(scope.struct, versions, scope.flexible).condition(nullable)
    if condition is None:
        return [line(f"{compact}nullable_")]
    return [f"if {condition}:", "    " + line(f"{compact}nullable_"), "else:", "    " + line(compact)]


def _read_struct(scope: Scope, item: Field) -> list[str]:
    read = [f"m.{item.name}, position = {_struct_reader(scope, item)}(buffer, position, version)"]
    if not item.nullable:
        return read
    assert item.nullable == item.versions
    layout, _ = scope.layout([_marker(item)])
    return [
        f"(marker,) = {layout}.unpack_from(buffer, position)",
        "position += 1",
        "if marker < 0:",
        f"    m.{item.name} = None",
        "else:",
        *indented(read),
    ]


def _marker(item: Field) -> Field:
    return type(item)("marker", "int8", False, None, 0, None)


def _read_array(scope: Scope, item: Field) -> list[str]:
    shortest = shortest_element(item, item.versions & scope.versions, scope.flexible)
    count = _by_nullability(
        scope, item, lambda prefix: f"count, position = read_{prefix}count(buffer, position, {shortest})"
    )
    if item.struct is not None:
        # Named after the field: one function may read several arrays of different types.
        read = [
            f"{item.name}_: list[{element_type(item)}] = []",
            "for _ in range(count):",
            f"    {item.name}_item, position = {_struct_reader(scope, item)}(buffer, position, version)",
            f"    {item.name}_.append({item.name}_item)",
            f"m.{item.name} = {item.name}_",
        ]
    elif item.kind in FIXED and item.kind != "uuid":
        code, size, _ = FIXED[item.kind]
        read = [f'm.{item.name}, position = read_numbers(buffer, position, count, "{code}", {size})']
    else:
        compact = "compact_" if scope.flexible and item.kind == "string" else ""
        read = [f"m.{item.name}, position = read_{compact}{item.kind}s(buffer, position, count)"]
    if not item.nullable & scope.versions:
        return count + read
    return [*count, "if count < 0:", f"    m.{item.name} = None", "else:", *indented(read)]


def _struct_reader(scope: Scope, item: Field) -> str:
    assert item.struct is not None
    return f"_read_{function_name(item.struct)}{'_flexible' if scope.flexible else ''}"


def _tags(scope: Scope) -> list[str]:
    if not scope.flexible:
        return []
    tagged = scope.tagged_fields()
    if not tagged:
        return ["position = skip_tags(buffer, position)"]
    lines = [f"m.{item.name} = {default_value(item)}" for item in tagged]
    lines += ["tags, position = read_uvarint(buffer, position)", "for _ in range(tags):"]
    lines += ["    tag, position, end = read_tag(buffer, position)"]
    for index, item in enumerate(tagged):
        condition = scope.condition(item.versions)
        test = f"tag == {item.tag}" + (f" and {condition}" if condition else "")
        lines.append(f"    {'elif' if index else 'if'} {test}:")
        read = _read_fixed(scope, [item]) if is_fixed(item) else _read_field(scope, item)
        lines += indented(indented(read))
    return [*lines, "    else:", "        position = end", "    check_tag_end(position, end)"]


def default_value(item: Field) -> str:
    if item.default is None:
        return "None"
    if item.is_array:
        return "[]"
    if item.kind == "struct":
        return f"{element_type(item)}()"
    return "ZERO_UUID" if item.kind == "uuid" else literal(item.default)


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]
