"""Entry points for spark-submit run the jobs of `twinlog`."""

from twinlog.cluster.cli.audit import audit as command
from twinlog.cluster.pipeline.jobs import daily as daily_job
from twinlog.cluster.pipeline.jobs import export as export_job
from twinlog.cluster.pipeline.submit import audit, daily, export


def test_each_program_is_its_job():
    assert audit.audit is command
    assert daily.main is daily_job.main
    assert export.main is export_job.main
