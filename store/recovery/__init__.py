"""Recovery at a start: finds the log's end, brings the queues up to it, and begins from the last recovery point.

Begin with recovery.py; queues.py opens the queues, point.py is the state that is kept.
Imported by services, truncation and message_store.py.
"""
