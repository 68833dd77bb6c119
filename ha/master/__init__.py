"""The master's side: accepts slaves, pushes the log to them, and releases producers when enough have acknowledged.

Begin with accept.py (AcceptSocketService), connection.py (HAConnection) and group_transfer.py (GroupTransferService).
Imported by service.py.
"""
