"""Requests from one member to another, of ours or RocketMQ's.

Begin with ha_peer.py and role_messages.py.
Imported by roles, processors and observe.
"""
