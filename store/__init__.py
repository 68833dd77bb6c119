"""Bytes on disk: the log, its queues and its index. Knows nothing of networks or replicas.

Begin with message_store.py, the one way in, then log/commit_log.py; wiring.py makes the parts and joins them.
Imported by ha and cluster.
"""
