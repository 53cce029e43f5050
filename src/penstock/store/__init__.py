"""The message store: one log, queues and an index built from it."""
