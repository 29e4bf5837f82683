"""Which topics a query reads: Spark's own parser says, so strings, comments, WITH and sub-queries are no matter."""

import difflib
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from penstock.spark.pipelines.sql.explain import explained
from penstock.spark.pipelines.sql.settings import SqlError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RELATION = "UnresolvedRelation"
_WITH = "UnresolvedWith"
# What a query never is, by the last part of the plan's class: statements that change something or tell something.
_STATEMENTS = (
    "Statement",
    "Command",
    "Table",
    "View",
    "Relation",
    "Database",
    "Namespace",
    "Function",
    "Catalog",
)


def table_names(spark: "SparkSession", query: str) -> list[str]:
    """Names after FROM and JOIN, in the order they come; not those that WITH defines."""
    try:
        plan = _parser(spark).parsePlan(query)
    except PySparkException as error:
        raise explained(error, query) from None
    _check_is_query(plan)
    found: dict[str, None] = {}
    _collect(plan, frozenset(), found)
    if not found:
        raise SqlError("the query reads no topic: name one after FROM, as in SELECT * FROM orders")
    return list(found)


def _parser(spark: "SparkSession") -> Any:
    return spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001


def _check_is_query(plan: Any) -> None:
    name = str(plan.getClass().getSimpleName())
    if name != _RELATION and name.endswith(_STATEMENTS):
        raise no_query(name)


def no_query(statement: str) -> SqlError:
    return SqlError(
        f"only queries can run as a pipeline, and this is a statement ({statement}): write SELECT …"
    )


def _collect(plan: Any, defined: frozenset[str], found: dict[str, None]) -> None:
    """`defined` are the names that a WITH around here gives to sub-queries; they hide topics."""
    kind = plan.getClass().getSimpleName()
    if kind == _RELATION:
        parts = _items(plan.multipartIdentifier())
        if len(parts) == 1 and parts[0].lower() in defined:
            return
        if len(parts) > 1:
            name = ".".join(parts)
            raise SqlError(f"the name of a topic with dots goes in backticks: `{name}` instead of {name}")
        found.setdefault(parts[0])
        return
    inner = _items(plan.innerChildren())
    if kind == _WITH:
        for definition in inner:
            _collect(definition, defined, found)
            defined |= {str(definition.alias()).lower()}
        inner = []
    for child in (*_items(plan.children()), *inner):
        _collect(child, defined, found)


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def check_topics(names: Iterable[str], there: Collection[str]) -> None:
    """Every name is a topic; if not, which one was probably meant."""
    seen: dict[str, str] = {}
    for name in names:
        if name not in there:
            raise SqlError(f"there is no topic {name}{nearest(name, there)}")
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise SqlError(
                f"the topics {other} and {name} differ only in case, which SQL does not see: query them one by one"
            )


def check_target(target: str, names: Collection[str], there: Collection[str]) -> None:
    """The topic that rows go to is there, and is none of those that are read."""
    if target not in there:
        raise SqlError(f"there is no topic {target} to write to{nearest(target, there)}")
    if target in names:
        raise SqlError(f"the query reads {target} and would read its own rows again: write to another topic")


def nearest(name: str, there: Collection[str]) -> str:
    if not there:
        return ": the broker has none yet; make it with `penstock topic create`"
    folded = {topic.lower(): topic for topic in there}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    return f": did you mean {folded[near[0]]}?" if near else ": see `penstock topic list`"
