"""The directive `metrics`, one family of the metrics in cluster/metrics/exposition.py as a table."""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from twinlog.cluster.metrics import ha_rows, process_rows, row, traffic_rows
from twinlog.cluster.metrics.exposition import FAMILIES
from twinlog.cluster.metrics.row import Metric


def table(metrics: tuple[Metric, ...]) -> str:
    """In Markdown, one row each; the labels in their order."""
    rows = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.all_labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help.replace('|', '&#124;')} |")
    return "\n".join(rows)


class MetricsDirective(SphinxDirective):
    required_arguments = 1  # The name of a family.
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        for module in (ha_rows, process_rows, row, traffic_rows):
            self.env.note_dependency(module.__file__)
        return self.parse_text_to_nodes(table(FAMILIES[self.arguments[0]]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("metrics", MetricsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
