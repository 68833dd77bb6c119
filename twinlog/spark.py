"""Store directories as Spark tables, and the audit that compares replicas. Public API; needs `pip install twinlog[spark]`.

from twinlog.spark import spark_session

records = spark_session().read.format("rocketmq_records").load("/data/broker-a")
"""

from twinlog.cluster.pipeline.audit.report import AuditReport
from twinlog.cluster.pipeline.jobs.audit import AuditOptions, SparkUnusableError, audit
from twinlog.cluster.pipeline.jobs.export import ExportOptions, export
from twinlog.cluster.pipeline.jobs.session import prepare, spark_session
from twinlog.cluster.pipeline.sources.places import StoreUri

__all__ = [
    "AuditOptions",
    "AuditReport",
    "ExportOptions",
    "SparkUnusableError",
    "StoreUri",
    "audit",
    "export",
    "prepare",
    "spark_session",
]
