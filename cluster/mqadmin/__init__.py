"""Texts and requests of RocketMQ's mqadmin, for `twinlog mqadmin`.

Begin with text.py.
Imported by cli.
"""
