"""What a send needs beside its processor: the request's parts, checks, and the answers that wait for slaves.

Begin with requests.py, then acks.py.
Imported by processors/send.py and its neighbours.
"""
