"""Streaming SQL over topics: a query whose tables are topics, and a place for its rows.

running  start the query, watch it, stop it                settings  what was asked for, checked
tables   the topics that a query names                     views     a topic as a table of a query
sample   columns inferred from records                     targets   a topic, a lake, the screen
memory   which query a checkpoint belongs to               explain   Spark's errors as one sentence
"""

from penstock.spark.pipelines.sql.running import RunningSql, Summary, sql
from penstock.spark.pipelines.sql.settings import SqlError, SqlSettings

__all__ = ["RunningSql", "SqlError", "SqlSettings", "Summary", "sql"]
