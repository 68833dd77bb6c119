"""axe-core, which finds what keeps people from using a page."""

from pathlib import Path

from playwright.sync_api import Page

AXE = Path(__file__).parent / "vendor" / "axe.min.js"


def bad_things(page: Page) -> list[str]:
    """What axe, added to the page as a script, calls serious or critical."""
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    return [
        f"{each['id']}: {node['html']} {node['failureSummary']}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
