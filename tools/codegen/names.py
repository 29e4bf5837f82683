"""Names: fields as Kafka calls them (in snake case), classes without clashes inside a module."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tools.codegen.schema import Body, Struct

# kio drops the unit from durations and times. All of Kafka's have it, but for these.
_WITHOUT_UNIT = {
    ("describe_delegation_token", "issue_timestamp"),
    ("describe_delegation_token", "expiry_timestamp"),
    ("describe_delegation_token", "max_timestamp"),
}


def kafka_name(message: str, name: str, kio_kind: str) -> str:
    name = name.removesuffix("_")  # kio steps around Python's `id` and `type`
    if kio_kind.startswith(("timedelta", "datetime")) and (message, name) not in _WITHOUT_UNIT:
        return f"{name}_ms"
    return name


def class_names(bodies: list[Body]) -> None:
    """A request and a response may each have a struct of one name: one class where they are the same,
    else two with the direction in front."""
    first = {struct.name: struct for struct in bodies[0].root.walk()}
    for body in bodies:
        for struct in body.root.walk():
            struct.class_name = struct.name
    for struct in bodies[-1].root.walk() if len(bodies) == 2 else ():
        twin = first.get(struct.name)
        if twin is not None and twin != struct:
            twin.class_name, struct.class_name = f"Request{struct.name}", f"Response{struct.name}"


def function_name(struct: Struct) -> str:
    snake = "".join(f"_{char.lower()}" if char.isupper() else char for char in struct.class_name)
    return snake.lstrip("_")


def title(message: str) -> str:
    return "".join(part.capitalize() for part in message.split("_"))
