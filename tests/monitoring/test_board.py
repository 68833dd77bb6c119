"""The Grafana board: it asks for what there is, and each of its questions has an answer on a running cluster."""

import json
import re

import pytest
import yaml

from tests.monitoring.prometheus import ROOT
from tests.support.waiting import wait_for
from twinlog.cluster.metrics.exposition import METRICS

GRAFANA = ROOT / "deploy/grafana"
BOARD = json.loads((GRAFANA / "dashboards/twinlog.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = [(f"{panel['title']}: {each['refId']}", each["expr"]) for panel in PANELS for each in panel["targets"]]
QUERIES += [(each["name"], each["expr"]) for each in BOARD["annotations"]["list"] if "expr" in each]
MAY_BE_EMPTY = {"Role changes"}  # Marks in the picture: mostly there is none.
MAY_BE_EMPTY |= {  # The cluster that is watched has no etcd: see tests/roles/test_etcd.py.
    "In-sync set in etcd: A",
    "In-sync set in etcd: B",
    "In-sync set changed, seconds ago: A",
    "One copy: A",
    "etcd: A",
}
VARIABLES = {"$cluster": ".*", "$group": ".*", "$__rate_interval": "1m"}
NOT_SHOWN = {"process_start_time_seconds", "process_virtual_memory_bytes", "process_max_fds"}
NOT_SHOWN |= {"twinlog_event_loop_stalled_seconds", "twinlog_snapshot_age_seconds"}  # Of this moment, and mostly 0.


def asked(expression: str) -> str:
    """As Grafana would ask with everything chosen."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return expression


@pytest.mark.parametrize(("name", "expression"), QUERIES, ids=[name for name, _ in QUERIES])
def test_every_query_has_an_answer(watched, name, expression):
    if name in MAY_BE_EMPTY:
        watched.prometheus.query(asked(expression))
    else:
        wait_for(lambda: has_numbers(watched, expression), f"{name}: {expression}")


def has_numbers(watched, expression: str) -> bool:
    found = watched.prometheus.query(asked(expression))
    return any(value == value for value in found.values())  # NaN: there was nothing to take a part of.


def test_every_metric_is_on_the_board():
    text = " ".join(expression for _, expression in QUERIES)
    used = {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:rocketmq|twinlog|process)_\w+", text)
    }
    assert used == {metric.name for metric in METRICS} - NOT_SHOWN


def test_the_variables_are_found(watched):
    for variable in BOARD["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", variable["definition"]).groups()
            assert watched.prometheus.query(f"count by ({label}) ({metric})"), variable["name"]


def test_panels_lie_beside_one_another():
    """Within 24 columns, and no two in one place."""
    taken = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_it_is_provisioned_with_its_data_source():
    source = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    chosen = next(each for each in BOARD["templating"]["list"] if each["type"] == "datasource")
    assert (source["type"], source["uid"]) == (chosen["query"], chosen["current"]["value"])
    provider = yaml.safe_load((GRAFANA / "provisioning/dashboards/twinlog.yml").read_text())["providers"][0]
    assert provider["type"] == "file"
    used = {json.dumps(panel["datasource"]) for panel in PANELS}
    assert used == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
