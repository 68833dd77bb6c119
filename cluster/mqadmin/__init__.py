"""Operations of `twinlog mqadmin`, with the output of RocketMQ's mqadmin.

Begin with text.py.
Imported by cli.
"""
