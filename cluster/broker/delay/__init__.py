"""Delay levels: messages that are delivered later. Source: ScheduleMessageService (RocketMQ 4.9.8).

Begin with service.py.
Imported by the processors and transactions.
"""
