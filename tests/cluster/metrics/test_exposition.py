"""The table of metrics: what Prometheus's rules ask of names, and that page, table and /metrics tell the same."""

import re
import sys
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from tests.cluster.broker.helpers import make_broker, opened, put
from twinlog.cluster.metrics import broker_snapshot, expose, namesrv_snapshot
from twinlog.cluster.metrics.exposition import FAMILIES, METRICS
from twinlog.cluster.metrics.ha_rows import ROLES, STATES
from twinlog.cluster.metrics.snapshot import NamesrvSnapshot
from twinlog.cluster.namesrv.service import NameServer
from twinlog.store.util.histogram import SECONDS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/reference/metrics.md").read_text()
UNITS = ("seconds", "bytes", "milliseconds", "ratio", "messages")  # milliseconds: RocketMQ's own.


def test_no_name_is_given_twice():
    assert len({metric.name for metric in METRICS}) == len(METRICS)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_rules(metric):
    """Counters end in _total and nothing else does; histograms have a unit; no label is named in a metric's name."""
    assert re.fullmatch(r"(rocketmq|twinlog|process)_[a-z_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    if metric.kind == "histogram":
        assert metric.name.endswith(UNITS)
    assert len(set(metric.all_labels)) == len(metric.all_labels)
    assert not metric.help.endswith("."), "as Prometheus writes it"


def test_the_page_has_every_family_and_bucket():
    assert re.findall(r"^```\{metrics\} (.+)$", PAGE, re.MULTILINE) == list(FAMILIES)
    bounds = ", ".join(f"{bound:g}" for bound in SECONDS)
    assert f"in seconds: {bounds}." in " ".join(PAGE.split())


def test_a_row_of_the_page():
    sys.path.insert(0, str(ROOT / "docs/_ext"))
    try:
        from metrics import table
    finally:
        sys.path.pop(0)
    (row,) = (each for each in table(FAMILIES["Replication"]).splitlines() if "`rocketmq_ha_epoch`" in each)
    assert row.startswith("| `rocketmq_ha_epoch` | gauge | `cluster`, `group`, `member` | Epoch of")


async def test_a_broker_shows_every_metric_with_type_and_help(tmp_path):
    async with opened(make_broker(tmp_path)) as client:
        put(client.broker)
        text = expose(broker_snapshot(client.broker), "")[0].decode()
    shown = {family.name: family for family in parse(text)}
    for metric in METRICS:
        if metric.of != (NamesrvSnapshot,):
            family = shown.pop(metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name)
            assert family.type == metric.kind
            assert family.documentation
            for sample in family.samples:
                assert metric.read is None or set(metric.all_labels) == sample.labels.keys() - {"le"}
    assert not shown, "not in the table"


async def test_a_name_server_shows_its_own(autojump_clock):
    text = expose(namesrv_snapshot(NameServer()), "")[0].decode()
    shown = {family.name for family in parse(text)}
    expected = {metric.name for metric in METRICS if NamesrvSnapshot in metric.of}
    assert shown == {name.removesuffix("_total") for name in expected}


async def test_openmetrics_when_asked_for(tmp_path):
    """As Prometheus asks since 2.5. Its parser refuses what that would: buckets that fall, families torn apart, no end."""
    async with opened(make_broker(tmp_path)) as client:
        client.broker.store.flusher.times.note(0.002, 3)
        client.broker.store.flusher.times.note(20, 1)
        asked = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
        body, content_type = expose(broker_snapshot(client.broker), asked)
        assert content_type.startswith("application/openmetrics-text")
        assert expose(broker_snapshot(client.broker), "*/*")[1].startswith("text/plain")
    families = {family.name: family for family in parse_openmetrics(body.decode())}
    buckets = {
        sample.labels["le"]: sample.value
        for sample in families["rocketmq_storage_fsync_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    assert (buckets["0.0015"], buckets["0.0025"], buckets["10.0"], buckets["+Inf"]) == (0, 3, 3, 4)


def test_exactly_one_role_and_state_can_hold():
    assert len(set(ROLES)) == len(ROLES)
    assert len(set(STATES)) == len(STATES)
