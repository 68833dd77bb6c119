"""docs/reference/etcd.md has a row for each cause that an error or a finding may have."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_cause_is_on_the_page():
    sources = [file.read_text() for file in (ROOT / "cluster/etcd").glob("*.py")]
    said = re.compile(r'(?:cause=|^LEASE = |^NO_CONNECTION = )"([^"]+)"', re.MULTILINE)
    causes = {each for text in sources for each in said.findall(text)}
    table = (ROOT / "docs/reference/etcd.md").read_text().partition("## Refusals")[2].partition("\n## ")[0]
    rows = {each.strip() for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for each in row.split(",")}
    assert len(causes) > 20
    assert rows - {"cause", "---"} == causes
