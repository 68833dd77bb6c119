"""Blocking client for scripts and threads: thin wrappers round the asynchronous classes, which run in an event loop of their own.

Begin with calls.py, then client.py and consumers.py.
Imported by twinlog.client.
"""
