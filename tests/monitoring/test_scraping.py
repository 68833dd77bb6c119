"""Debian's Prometheus scrapes a running cluster: everything that the reference names is there, and it moves."""

import signal

import pytest
import yaml

from tests.monitoring.conftest import SLAVES, TOPIC
from tests.monitoring.prometheus import DEPLOY
from tests.support.waiting import wait_for
from twinlog.cluster.metrics.exposition import METRICS

# This cluster has no etcd: tests/cluster/metrics/test_broker_snapshot.py has them.
WITH_ETCD = {
    "rocketmq_ha_in_sync_set_members",
    "rocketmq_ha_in_sync_set_version",
    "rocketmq_ha_in_sync_set_changed_seconds",
    "rocketmq_ha_one_copy",
    "rocketmq_ha_etcd_usable",
}


def test_all_members_are_scraped_without_error(watched):
    def scraped() -> bool:
        targets = watched.prometheus.get("targets")["activeTargets"]
        return len(targets) == 2 + SLAVES and all(each["health"] == "up" and not each["lastError"] for each in targets)

    wait_for(scraped, "all targets are up")


@pytest.mark.parametrize(
    "metric", [metric for metric in METRICS if metric.name not in WITH_ETCD], ids=lambda metric: metric.name
)
def test_every_metric_of_the_reference_is_scraped_with_type_and_help(watched, metric):
    name = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
    wait_for(lambda: watched.prometheus.query(f"count({name})"), f"a sample of {name}")
    known = watched.prometheus.get("metadata", metric=metric.name)
    (found,) = (
        known.get(metric.name)
        or watched.prometheus.get("metadata", metric=metric.name.removesuffix("_total"))[
            metric.name.removesuffix("_total")
        ]
    )
    assert found["type"] == metric.kind
    assert found["help"] == metric.help or metric.read is None


def test_the_rules_are_loaded_and_evaluated(watched):
    written = [
        each["alert"]
        for group in yaml.safe_load((DEPLOY / "rules.yml").read_text())["groups"]
        for each in group["rules"]
    ]

    seen: list[tuple[str, str]] = []

    def healthy() -> bool:
        groups = watched.prometheus.get("rules")["groups"]
        seen[:] = [(rule["name"], rule["health"]) for group in groups for rule in group["rules"]]
        return sorted(seen) == sorted((name, "ok") for name in written)

    try:
        wait_for(healthy, "all rules are evaluated")
    except AssertionError as error:
        raise AssertionError(f"not all rules are evaluated: {seen}") from error


def test_one_master_serves_and_all_agree_on_the_epoch(watched):
    ask = watched.prometheus
    ask.wait_for('sum(rocketmq_ha_role_info{role="master"})', 1)
    ask.wait_for('sum(rocketmq_ha_role_info{role="slave"})', SLAVES)
    ask.wait_for('count(count by (epoch) (count_values("epoch", rocketmq_ha_epoch)))', 1)
    ask.wait_for("sum by (group) (rocketmq_ha_in_sync_members)", 1 + SLAVES)


def test_messages_are_counted_where_producers_sent_them(watched):
    ask = watched.prometheus
    ask.wait_for(f'sum(rocketmq_messages_in_total{{topic="{TOPIC}"}})', 250)
    ask.wait_for(f'max(rocketmq_consumer_lag_messages{{topic="{TOPIC}"}})', 150)
    ask.wait_for(f'sum(rocketmq_send_to_dlq_messages_total{{topic="{TOPIC}"}})', 1)


@pytest.mark.timeout(120)
def test_lag_rises_while_a_slave_stands_still_and_falls_after(watched):
    """Also after its master has given the connection up: whoever is gone still lags."""
    ask, replica = watched.prometheus, '{replica="broker-a-2"}'
    ask.wait_for(f"rocketmq_ha_replica_lag_bytes{replica}", 0)
    slave = watched.up.member("broker-a-2")
    slave.send_signal(signal.SIGSTOP)
    try:
        watched.up.twinlog("send", TOPIC, "unseen", "--count", "20")
        wait_for(lambda: (ask.value(f"rocketmq_ha_replica_lag_bytes{replica}") or 0) > 0, "bytes of lag")
        wait_for(lambda: (ask.value(f"rocketmq_ha_replica_lag_seconds{replica}") or 0) > 2, "seconds of lag")
        wait_for(lambda: (ask.value(f"rocketmq_ha_replica_lag_messages{replica}") or 0) >= 10, "messages of lag")
        ask.wait_for('sum(up{service="broker"})', SLAVES)
    finally:
        slave.send_signal(signal.SIGCONT)
    ask.wait_for(f"rocketmq_ha_replica_lag_bytes{replica}", 0)
    ask.wait_for(f"rocketmq_ha_replica_connected{replica}", 1)


def test_what_a_scrape_costs_the_loop_is_little(watched):
    """A bound with room for a busy machine; docs/operating/monitoring.md has the measured numbers."""
    assert max(watched.prometheus.query("min_over_time(twinlog_snapshot_seconds[1m])").values()) < 0.02
