"""Who may be master: epochs, votes, leases and the group's record. Pure, but for the files of a voter.

Begin with votes.py and role_change.py.
Imported by slave, service.py and cluster.
"""
