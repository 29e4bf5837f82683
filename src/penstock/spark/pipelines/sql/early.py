"""What can be said of a query before Spark runs, which takes seconds: statements, and topics that are not there.

Spark's parser has the last word (`tables`). This one only looks at names right behind FROM and JOIN, and says nothing
where it is not sure: in function calls such as `extract(year FROM at)`, of names in two parts, of what WITH defines.
"""

import re
from collections.abc import Collection

from penstock.spark.pipelines.sql.settings import SqlSettings, TargetKind
from penstock.spark.pipelines.sql.tables import check_target, check_topics, no_query

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<quoted>`(?:[^`]|``)*`)|(?P<word>\w+)|(?P<sign>.)""",
    re.DOTALL,
)
_QUERY_WORDS = {"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("}
_STATEMENT_WORDS = {
    "ALTER",
    "ANALYZE",
    "CACHE",
    "CALL",
    "CREATE",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DROP",
    "EXPLAIN",
    "INSERT",
    "MERGE",
    "MSCK",
    "REFRESH",
    "REPLACE",
    "SET",
    "SHOW",
    "TRUNCATE",
    "UNCACHE",
    "UPDATE",
    "USE",
}
_NO_NAMES = {"LATERAL", "VALUES", "TABLE", "STREAM", "SELECT", "UNPIVOT"}


def check_early(asked: SqlSettings, there: Collection[str]) -> None:
    """SqlError for what Spark would say as well, only later."""
    tokens = _tokens(asked.query)
    first = tokens[0].upper() if tokens else ""
    if first in _STATEMENT_WORDS:
        raise no_query(first)
    names = topics_in(tokens)
    check_topics(names, there)
    if asked.target.kind is TargetKind.TOPIC:
        check_target(asked.target.name, names, there)


def topics_in(tokens: list[str]) -> list[str]:
    """Names that are tables for sure."""
    defined = _defined(tokens)
    found: dict[str, None] = {}
    queries = [True]  # of each open parenthesis: whether a query is in it
    for at, token in enumerate(tokens):
        following = [*tokens[at + 1 : at + 3], "", ""]
        if token == "(":
            queries.append(following[0].upper() in _QUERY_WORDS)
        elif token == ")" and len(queries) > 1:
            queries.pop()
        elif token.upper() in {"FROM", "JOIN"} and queries[-1] and not _is_comparison(tokens, at):
            name, behind = following[0], following[1]
            if _is_name(name) and behind not in {".", "("} and _bare(name).lower() not in defined:
                found.setdefault(_bare(name))
    return list(found)


def _tokens(query: str) -> list[str]:
    return [match[0] for match in _TOKEN.finditer(query) if match.lastgroup != "skip"]


def _is_comparison(tokens: list[str], at: int) -> bool:
    """`a IS NOT DISTINCT FROM b`"""
    return at > 0 and tokens[at - 1].upper() == "DISTINCT"


def _is_name(token: str) -> bool:
    return token.startswith("`") or (token[:1].isidentifier() and token.upper() not in _NO_NAMES)


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _defined(tokens: list[str]) -> set[str]:
    """Whatever stands before `AS (`, with or without columns."""
    found = set()
    for at, token in enumerate(tokens):
        if token.upper() == "AS" and tokens[at + 1 : at + 2] == ["("] and at:
            before = at - 1
            if tokens[before] == ")":
                while before > 0 and tokens[before] != "(":
                    before -= 1
                before -= 1
            found.add(_bare(tokens[before]).lower())
    return found
