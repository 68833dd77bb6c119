"""A RocketMQ-compatible message broker, name server and HA replica.

Public API: twinlog.client (producers, consumers, administration), twinlog.spark (session, tables, audit) and twinlog.testing
(servers for tests). All else is internal and may change with any version: twinlog.store, twinlog.ha and twinlog.cluster, the
folders of these names at the top of the repository.
"""
