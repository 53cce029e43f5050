"""Settings: what they are (``schema``), where they come from (``load``), RocketMQ's names (``aliases``)."""

from penstock.config.broker import BrokerConfig
from penstock.config.delaylevels import parse_delay_levels
from penstock.config.load import load_broker_config, load_config
from penstock.config.remoting import RemotingSettings
from penstock.config.schema import StoreConfig

__all__ = [
    "BrokerConfig",
    "RemotingSettings",
    "StoreConfig",
    "load_broker_config",
    "load_config",
    "parse_delay_levels",
]
