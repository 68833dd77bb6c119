"""RocketMQ client on trio. Internal: applications import twinlog.client.

Begin with client.py, then producer.py and consume/push_consumer.py; api.py has a method for each request.
Imported by broker, admin, observe and cli.
"""
