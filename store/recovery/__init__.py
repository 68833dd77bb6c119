"""What a start does: find the log's end, bring queues level with it, and begin from the last recovery point.

Begin with recovery.py; queues.py opens the queues, point.py is the state that is kept.
Imported by services, truncation and message_store.py.
"""
