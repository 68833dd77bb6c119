"""Accounts, permissions and signatures of requests. Source: PlainAccessValidator (RocketMQ 4.9.8).

Begin with service.py, then permission.py.
Imported by wiring.py and the processors.
"""
