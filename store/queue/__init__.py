"""Consume queues: where in the log the messages of a topic's queue lie, 20 bytes each.

Begin with consume_queue.py, then consume_queue_table.py. Source: ConsumeQueue, ConsumeQueueExt (RocketMQ 4.9.8).
Imported by recovery, integrity, read and services.
"""
