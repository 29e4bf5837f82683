"""The data source `penstock`, as PySpark sees it.

PySpark imports this in every session that looks for data sources, also where nobody reads a topic: nothing but
PySpark itself is imported at the top, and what is missing is said when the source is used.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from penstock.spark.checks import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Set by `penstock pipeline replay` alone. A source of its own would have to be registered, and Spark looks for
# registered ones in whatever session is active in the thread.
REPLAY_OPTION = "penstock.replay"


class PenstockSource(DataSource):
    """Reads topics into DataFrames and writes DataFrames to topics, with the options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> "StructType":
        require_pyspark()
        from penstock.spark.options import includes_headers  # noqa: PLC0415 - see above, as all below
        from penstock.spark.schema import source_schema  # noqa: PLC0415

        return source_schema(headers=includes_headers(self.options))

    def reader(self, schema: "StructType") -> DataSourceReader:
        require_pyspark()
        from penstock.spark.batch import BatchReader  # noqa: PLC0415
        from penstock.spark.options import read_options  # noqa: PLC0415

        return BatchReader(read_options(self.options, streaming=False), schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802 - PySpark's name
        require_pyspark()
        from penstock.spark.options import read_options  # noqa: PLC0415
        from penstock.spark.streaming import StreamReader  # noqa: PLC0415

        return StreamReader(read_options(self.options, streaming=True), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        require_pyspark()
        from penstock.spark.options import write_options  # noqa: PLC0415
        from penstock.spark.writing import BatchWriter, refuse_overwrite  # noqa: PLC0415

        refuse_overwrite(overwrite)
        if REPLAY_OPTION in self.options:
            from penstock.spark.pipelines.replaying.sink import ReplayWriter  # noqa: PLC0415

            return ReplayWriter.of(self.options[REPLAY_OPTION])
        return BatchWriter(write_options(self.options), schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        require_pyspark()
        from penstock.spark.options import write_options  # noqa: PLC0415
        from penstock.spark.writing import StreamWriter  # noqa: PLC0415

        return StreamWriter(write_options(self.options), schema)
