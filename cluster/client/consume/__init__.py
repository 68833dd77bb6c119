"""Consumers: push, pull, rebalance, offsets.

Begin with push_consumer.py.
Imported by admin and twinlog.client.
"""
