"""Talk to brokers, Penstock's or RocketMQ's: an asyncio core; :mod:`penstock.client.sync` blocks instead."""

from penstock.client.consumer import Consumer
from penstock.client.delivery import Delivery
from penstock.client.producer import Producer
from penstock.client.pullconsumer import PullConsumer
from penstock.client.pulling import PullResult, PullStatus
from penstock.client.queue import MessageQueue
from penstock.client.received import ReceivedMessage
from penstock.client.sendresult import SendResult, SendStatus
from penstock.client.settings import ClientSettings
from penstock.client.transaction import Transaction, TransactionState
from penstock.remoting.signing import Credentials

__all__ = [
    "ClientSettings",
    "Consumer",
    "Credentials",
    "Delivery",
    "MessageQueue",
    "Producer",
    "PullConsumer",
    "PullResult",
    "PullStatus",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "Transaction",
    "TransactionState",
]
