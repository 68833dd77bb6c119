"""RocketMQ client on trio. Internal: applications import twinlog.client.

Begin with client.py, then producer.py and consume/push_consumer.py; api/ has one function for each request of an
administrator.
Imported by broker, admin, observe and cli.
"""
