"""Half messages, and the check that asks their producers. Source: TransactionalMessageServiceImpl (RocketMQ 4.9.8).

Begin with records.py.
Imported by the processors.
"""
