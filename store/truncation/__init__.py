"""Cutting a log's end for good: first a copy of what is cut, then an intent, then log, queues and index.

Begin with truncation.py; resume.py goes on after a crash.
Imported by message_store.py and wiring.py.
"""
