"""State of a cluster: members, lag, findings, explanations. Reads only.

Begin with gather.py and members.py; the tables at the end of rules.py list all rules.
Imported by admin and the front ends.
"""
