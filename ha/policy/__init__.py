"""Decisions of replication as pure functions: who counts, who is in sync, what is kept for whom, when a peer is stuck.

Begin with in_sync.py, then ack_policy.py.
Each gets all that it needs as arguments, and has tests of its own. Imported by config.py, master, slave and cluster.
"""
