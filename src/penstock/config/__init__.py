"""Settings: what they are (``schema``), where they come from (``load``), RocketMQ's names (``aliases``)."""

from penstock.config.delaylevels import parse_delay_levels
from penstock.config.load import load_config
from penstock.config.schema import StoreConfig

__all__ = ["StoreConfig", "load_config", "parse_delay_levels"]
