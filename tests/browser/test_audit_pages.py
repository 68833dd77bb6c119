"""The pages of an audit and of its ledger in a real browser, from their files."""

import pytest

from tests.browser.axe import AXE, bad_things
from tests.browser.stage import DESKTOP, PHONE
from tests.cluster.pipeline.ledger_history import history
from tests.cluster.pipeline.reports import ALL, report_of
from twinlog.cluster.pipeline.report.ledger_page import ledger_page
from twinlog.cluster.pipeline.report.page import page

PAGES = {"ledger": lambda: ledger_page(history()), "report": lambda: page(report_of(*ALL))}


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_read_on_desktop_and_phone(browser, tmp_path, name, scheme):
    """Nothing serious by axe, the page does not scroll sideways, and pictures keep a size at which their text can be read."""
    file = tmp_path / "page.html"
    file.write_text(PAGES[name]())
    for viewport in (DESKTOP, PHONE):
        context = browser.new_context(viewport=viewport, color_scheme=scheme, bypass_csp=True)
        seen = context.new_page()
        said: list[str] = []
        seen.on("console", lambda message, said=said: said.append(message.text))
        seen.goto(file.as_uri())
        assert not seen.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        widths = seen.evaluate("[...document.querySelectorAll('.scroll > svg')].map(each => each.clientWidth)")
        assert min(widths) > 800
        seen.add_script_tag(path=str(AXE))
        assert bad_things(seen) == []
        assert said == []
        context.close()
