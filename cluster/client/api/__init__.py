"""Requests as functions: what mqadmin and the operations ask of brokers and name servers.

Begin with api.py and calls.py.
Imported by client, admin and observe.
"""
