"""Replication: bytes from a master's log into its slaves' logs. Imports store only.

Begin with service.py (HAService), then master/connection.py and slave/client.py; config.py has every option.
Imported by cluster.
"""
