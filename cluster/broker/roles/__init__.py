"""Role changes as a broker carries them out: switchover, failover, lease, rewind.

Begin with service.py and change.py; the decisions are in ha/election.
Imported by the processors and wiring.py.
"""
