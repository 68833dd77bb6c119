"""RocketMQ client on trio. Internal: applications import twinlog.client.

Begin with client.py, then producer.py and push_consumer.py.
"""
