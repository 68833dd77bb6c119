"""The alert rules as files: sound, tested, and each explained to whoever is woken by it."""

import re
from pathlib import Path

import pytest
import yaml

from tests.monitoring.prometheus import DEPLOY, ROOT, promtool
from twinlog.cluster.cli.run.up_plan import plan_up
from twinlog.cluster.metrics.exposition import METRICS

RULES = [rule for group in yaml.safe_load((DEPLOY / "rules.yml").read_text())["groups"] for rule in group["rules"]]
ALERTS = [rule["alert"] for rule in RULES]
PAGE = (ROOT / "docs/operating/monitoring.md").read_text()


@pytest.mark.parametrize("name", ["prometheus.yml", "local.yml"])
def test_promtool_accepts_the_configuration(name):
    assert f"{len(RULES)} rules found" in promtool("check", "config", DEPLOY / name)


@pytest.mark.parametrize("name", ["prometheus.yml", "local.yml"])
def test_the_ports_are_those_that_up_and_compose_take(name):
    plan = plan_up(Path("data"), slaves=2)
    scraped = yaml.safe_load((DEPLOY / name).read_text())["scrape_configs"]
    ports = {
        group["labels"]["service"]: [int(target.rpartition(":")[2]) for target in group["targets"]]
        for group in scraped[0]["static_configs"]
    }
    assert scraped[0]["job_name"] == "twinlog", "the rules look for it"
    assert ports == {"broker": [each.http_port for each in plan.brokers], "namesrv": [plan.namesrv.http_port]}


def test_brokers_of_the_second_group_are_found_by_their_names():
    """As fixed targets they would be down without the profile of Compose. Their labels are as those of the others."""
    _, second = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    found = {name: each["port"] for each in second["dns_sd_configs"] for name in each["names"]}
    plan = plan_up(Path("data"), masters=2, slaves=2)
    assert found == {each.name: each.http_port for each in plan.brokers if each.group == "broker-b"}
    job, service, instance = second["relabel_configs"]
    assert job == {"target_label": "job", "replacement": "twinlog"}
    assert service == {"target_label": "service", "replacement": "broker"}
    assert re.sub(instance["regex"], r"\1:\2", "broker-b-0;172.18.0.9:10944") == "broker-b-0:10944"


def test_promtool_tests_the_rules():
    assert "SUCCESS" in promtool("test", "rules", DEPLOY / "rules_test.yml")


def test_each_alert_is_seen_to_fire_and_to_be_silent():
    cases = yaml.safe_load((DEPLOY / "rules_test.yml").read_text())["tests"]
    fires, silent = set(), set()
    for case in [each for test in cases for each in test["alert_rule_test"]]:
        (fires if case.get("exp_alerts") else silent).add(case["alertname"])
    assert fires == silent == set(ALERTS)


def test_each_alert_has_its_place_in_the_docs():
    """What it means, and what to do; and the page tells of none that there is not."""
    assert sorted(re.findall(r"^### (Twinlog\w+)$", PAGE, re.MULTILINE)) == sorted(ALERTS)


@pytest.mark.parametrize("rule", RULES, ids=ALERTS)
def test_rules_are_made_of_metrics_that_there_are(rule):
    used = set(re.findall(r"\b(?:rocketmq|twinlog|process)_\w+", rule["expr"]))
    known = {metric.name for metric in METRICS}
    assert used <= known
    assert used or rule["expr"].startswith("up")
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert {"summary", "description"} == rule["annotations"].keys()
