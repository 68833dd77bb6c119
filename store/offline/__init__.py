"""Store directories of anybody, read without running them: RocketMQ's or ours, whole or damaged.

Begin with directory.py and walk.py; verify/ checks a directory, copy/ backs it up, restores and rebuilds it.
Imported by cluster.
"""
