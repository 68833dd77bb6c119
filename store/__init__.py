"""Bytes on disk: commit log, consume queues, index, recovery. Knows nothing of networks or replicas."""
