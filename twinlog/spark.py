"""Running clusters and store directories as Spark sources, and the audit that compares replicas. Public API; needs
`pip install twinlog[spark]`.

from twinlog.spark import spark_session

records = spark_session().read.format("rocketmq_records").load("/data/broker-a")
orders = spark_session().readStream.format("rocketmq").option("nameServer", "ns1:9876").option("subscribe", "orders").load()
"""

from twinlog.cluster.pipeline.audit.report import AuditReport
from twinlog.cluster.pipeline.jobs.audit import AuditOptions, SparkUnusableError, audit
from twinlog.cluster.pipeline.jobs.delta import delta_settings
from twinlog.cluster.pipeline.jobs.export import ExportOptions, ExportResult, export
from twinlog.cluster.pipeline.jobs.iceberg import IcebergWriter
from twinlog.cluster.pipeline.jobs.messages import message_of
from twinlog.cluster.pipeline.jobs.session import prepare, spark_session
from twinlog.cluster.pipeline.sources.places import StoreUri
from twinlog.cluster.pipeline.topics.progress import SourceLag, lag_of

__all__ = [
    "AuditOptions",
    "AuditReport",
    "ExportOptions",
    "ExportResult",
    "IcebergWriter",
    "SourceLag",
    "SparkUnusableError",
    "StoreUri",
    "audit",
    "delta_settings",
    "export",
    "lag_of",
    "message_of",
    "prepare",
    "spark_session",
]
