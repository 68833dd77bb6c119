"""Parts of a send: reading and checking requests, properties, and responses that wait for disk and slaves.

Begin with requests.py, then acks.py.
Imported by processors/send.py and its neighbours.
"""
