"""Role changes of a running broker: switchover, failover, lease, rewind.

Begin with service.py, member.py and change.py; the decisions are pure, in ha/election.
Imported by the processors and wiring.py.
"""
