"""The commit log: mapped files, appending, walking, and the thread that reads pages ahead.

Begin with commit_log.py, then mapped_file.py. Source: CommitLog, MappedFile, MappedFileQueue (RocketMQ 4.9.8).
Imported by all packages of the store above it and by ha.
"""
