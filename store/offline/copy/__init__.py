"""Backup, restore, and the rebuilding of queues and index.

Begin with backup.py.
Imported by cluster/cli.
"""
