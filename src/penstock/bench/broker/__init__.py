"""``penstock bench broker``: our broker, RocketMQ's and one that stores nothing, under one Java client."""
