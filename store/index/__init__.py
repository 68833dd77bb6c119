"""Index files: from a message's key to where it lies in the log.

Begin with layout.py, then index_file.py and service.py. Source: IndexFile, IndexService (RocketMQ 4.9.8).
Imported by read, services and truncation.
"""
