"""The slave's side: connects, proves that both logs are the same so far, appends and acknowledges.

Begin with client.py (HAClient), then following.py and replica.py.
Imported by service.py and cluster/broker.
"""
