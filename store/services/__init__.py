"""Background services: flush, dispatch into queues and index, and the removal of old files.

Begin with flush.py and dispatch.py. Source: ReputMessageService, FlushCommitLogService, CleanCommitLogService (RocketMQ
4.9.8).
Imported by truncation, message_store.py and wiring.py.
"""
