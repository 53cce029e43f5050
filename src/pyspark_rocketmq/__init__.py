"""Lets Spark find the source ``rocketmq`` by itself: it looks for modules named ``pyspark_*``."""

from penstock.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
