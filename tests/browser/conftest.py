"""One group, one dashboard and one browser for all tests here; each test gets pages of its own."""

import pytest

from tests.browser.stage import DESKTOP, chromium, staged, visit


@pytest.fixture(scope="session")
def browser():
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    with staged(tmp_path_factory.mktemp("browser") / "stage") as ready:
        ready.group.twinlog("send", "orders", "hello", "--count", "20", "--keys", "order-4711")
        yield ready


@pytest.fixture
def seen(stage, browser):
    """A desktop's page, not loaded yet. Whatever the test looks at: nothing may go wrong in it, and nobody else is asked."""
    stage.group.wait_healthy()
    context = browser.new_context(viewport=DESKTOP)
    found = visit(context, stage.dashboard.url)
    yield found
    context.close()
    assert found.errors == []
    assert found.strangers == []
