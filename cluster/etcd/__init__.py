"""A client of etcd on trio, over its JSON gateway (API v3): what a group needs to keep its record there, and no more.

Read `protocol.py` first: the operations, their results and the three kinds of errors; then `client.py`. `gateway.py` is the
codec and says what each reply means, `transport.py` sends requests to one endpoint after another and signs in. Any error is an
outage: none can be taken for a swap that was lost.
"""
