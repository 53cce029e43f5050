"""The data source ``rocketmq``: what Spark asks for, answered by the modules that do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from penstock.spark.options import BROKERS, ReadOptions
from penstock.spark.schema import full_schema, projection

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
    )


class RocketMQSource(DataSource):
    """Messages of a store directory, of segments of one, or of brokers as rows; rows as messages."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> StructType:
        """All columns; reads nothing of the store, but checks the options."""
        return full_schema(quarantine=self._read_options().quarantine)

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.reader import AdvisingReader, BatchReader

        options = self._read_options()
        columns = projection(schema, quarantine=options.quarantine)
        return (AdvisingReader if options.pushFilters else BatchReader)(options, columns, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from penstock.spark.streaming import StreamReader

        options = self._read_options()
        return StreamReader(options, projection(schema, quarantine=options.quarantine), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if _to_brokers(self.options):
            from penstock.spark.network.writer import BrokerWriter

            return BrokerWriter(dict(self.options), schema, overwrite)
        from penstock.spark.writer import RocketMQWriter

        return RocketMQWriter(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        if _to_brokers(self.options):
            from penstock.spark.network.writer import BrokerSink

            return BrokerSink(dict(self.options), schema, overwrite)
        from penstock.spark.sink import RocketMQSink

        return RocketMQSink(dict(self.options), schema, overwrite)

    def _read_options(self) -> ReadOptions:
        return ReadOptions.parse(dict(self.options))


def _to_brokers(options: Mapping[str, str]) -> bool:
    return any(
        name.lower() == "namesrv" or (name.lower() == "path" and value.startswith(BROKERS))
        for name, value in options.items()
    )
