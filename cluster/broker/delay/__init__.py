"""Delay levels: messages with a delayed delivery. Source: ScheduleMessageService (RocketMQ 4.9.8).

Begin with service.py.
Imported by the processors and transactions.
"""
