"""Orders from a topic: as they came, decoded, and their sums by minute."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
STORE = spark.conf.get("spark.penstock.store")
ORDER = "item string, count int, price double"


@dp.table(comment="Every message of the topic, as stored")
def raw_orders() -> DataFrame:
    stream = spark.readStream.format("rocketmq").option("subscribe", "orders")
    return stream.option("startingOffsets", "earliest").load(STORE)


@dp.table(comment="The orders in them; a body that is no order is kept as text")
def orders() -> DataFrame:
    body = F.col("body").cast("string")
    return (
        spark.readStream.table("raw_orders")
        .withColumn("order", F.from_json(body, ORDER))
        .select(
            "queueId",
            "queueOffset",
            F.col("storeTimestamp").alias("at"),
            "order.*",
            F.when(F.col("order.item").isNull(), body).alias("unreadable"),
        )
    )


@dp.materialized_view(comment="Orders, pieces and revenue of each item, by minute")
def orders_by_minute() -> DataFrame:
    return (
        spark.read.table("orders")
        .where("unreadable is null")
        .groupBy(F.window("at", "1 minute").alias("minute"), "item")
        .agg(
            F.count("*").alias("orders"),
            F.sum("count").alias("pieces"),
            F.round(F.sum(F.expr("count * price")), 2).alias("revenue"),
        )
        .select("minute.start", "item", "orders", "pieces", "revenue")
    )
