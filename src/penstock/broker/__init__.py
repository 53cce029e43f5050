"""The broker: RocketMQ's requests answered from a store. One module per kind of request."""

from penstock.broker.broker import Broker

__all__ = ["Broker"]
