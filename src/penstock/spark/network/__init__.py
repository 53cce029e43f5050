"""Live brokers, Penstock's or RocketMQ's, as the second body of the source: option ``namesrv``.

A queue is named by its topic and broker, ``orders@broker-a``, and its number: several brokers of a cluster
have queues of the same number. No topic has an ``@`` in its name.
"""
