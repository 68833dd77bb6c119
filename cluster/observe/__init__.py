"""State of a cluster: members, lag, findings, explanations. Reads only.

Begin with gather.py and members.py; rules.py judges.
Imported by admin and the front ends.
"""
