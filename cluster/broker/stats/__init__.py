"""Counters of traffic by topic and group, as RocketMQ's BrokerStatsManager has them.

Begin with stats.py.
Imported by wiring.py.
"""
