"""Elections: epochs, votes, leases and the group's record. Pure.

Begin with votes.py and role_change.py.
Imported by slave, service.py and cluster.
"""
