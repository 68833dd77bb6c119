"""The dashboard as people see it: Debian's chromium before a running cluster."""

import pytest

from tests.browser.axe import AXE, bad_things
from tests.browser.stage import DESKTOP, PHONE, TOKEN

SAFE = "All data is safe: 2 of 2 slaves"

# Pages have one loop for all tests, and trio is not in it.
pytestmark = pytest.mark.timeout(60)


def test_the_page_answers_and_lives(seen):
    """Verdict, picture, table, bars and charts are there, and the time goes on."""
    page = seen.open()
    seen.until(SAFE)
    assert page.locator("#members tbody tr").count() == 3
    assert page.locator("#picture .node").count() == 3
    assert page.locator("#offsets .bar.detail").count() == 3
    page.wait_for_selector("#chart-lag_bytes canvas")
    before = page.text_content("#live")
    page.wait_for_function("before => document.querySelector('#live').textContent !== before", arg=before)
    assert page.title().startswith(SAFE)


def test_without_javascript_the_table_is_there(stage, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(stage.dashboard.url)
    assert SAFE in page.text_content("#headline")
    rows = page.locator("#members tbody tr").all_inner_texts()
    assert sorted(row.split()[0] for row in rows) == ["broker-a-0", "broker-a-1", "broker-a-2"]
    assert not page.is_visible("#open-roles")
    page.fill("#peek-topic", "orders")
    page.fill("#peek-count", "2")
    page.click("#peek button")
    assert page.locator("#found .messages > li").count() == 2
    context.close()


def test_lag_rises_while_a_slave_stands_still_and_falls_after(stage, seen, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(b"x" * 4000)
    page = seen.open()
    seen.until(SAFE)
    slave = stage.slave()
    row = f"#members tbody tr:has(.name:text-is('{slave.label}')) td:nth-child(9)"
    assert page.text_content(row) == "0 B"
    with stage.traffic(rate=100, body=body):
        with stage.standing_still(slave):
            seen.until(f"One slave is away: {slave.label} does not answer")
            page.wait_for_function(
                "row => document.evaluate(row, document, null, 9).singleNodeValue", arg="//td[contains(., 'MB')]"
            )
            assert page.text_content(row).startswith("≤ ")
            drawn = page.evaluate("document.querySelector('#now-lag_bytes').textContent")
            assert slave.label in drawn
            assert "MB" in drawn
            assert f"{slave.label} does not answer" in page.text_content("#events")
            assert page.text_content("#issues code") == f"twinlog explain {slave.label}"
        seen.until(SAFE)
        assert "MB" not in page.text_content(row)


def test_a_role_change_previews_and_runs_to_its_end(stage, seen):
    """The plan needs no token; the change needs the right one and the group's name."""
    page = seen.open()
    candidate = stage.slave().label
    page.click("#open-roles")
    page.select_option("#role-candidate", candidate)
    page.fill("#role-reason", "from the page")
    page.click("#role-plan")
    page.wait_for_selector("#role-answer .plan li")
    assert f"{candidate} would become the master of broker-a" in page.text_content("#role-words")
    assert page.locator("#role-answer .plan li").count() == 8
    page.fill("#role-token", TOKEN)
    page.fill("#role-typed", "broker-b")
    page.click("#role-run")
    assert page.evaluate("document.querySelector('#role-typed').validationMessage") == "Type broker-a"
    page.fill("#role-typed", "broker-a")
    page.click("#role-run")
    seen.until(f"Done: {candidate} is the master of broker-a", "#role-answer")
    assert page.locator("#role-answer .plan .done").count() == 8
    page.click("#role-close")
    assert page.input_value("#role-token") == ""
    seen.until(f"{candidate} is the master now", "#events")
    assert stage.group.master().label == candidate
    assert "from the page" in stage.group.twinlog("history").stdout
    seen.until(SAFE)


def test_a_group_that_elects_by_itself_shows_how(stage, seen):
    """Who would be next; and what happened, once its master stood still."""
    seen.open()
    seen.until("by a person: twinlog failover", "#picture")
    stage.group.twinlog("auto-failover", "members")
    seen.until("by the group itself; broker-a-", "#picture")
    master = stage.group.master()
    with stage.standing_still(master):
        seen.until("was elected", "#events")
    seen.until(SAFE)
    assert stage.group.master() is not master
    stage.group.twinlog("auto-failover", "off")
    seen.until("by a person: twinlog failover", "#picture")


def test_a_wrong_token_and_a_refusal_are_told(stage, seen):
    page = seen.open()
    page.click("#open-roles")
    page.click("#role-plan")
    page.wait_for_selector("#role-answer .plan li")
    page.fill("#role-token", "not-the-right-one-at-all")
    page.fill("#role-typed", "broker-a")
    page.click("#role-run")
    seen.until("The token is not one of ours.", "#role-answer")
    page.select_option("#role-verb", "failover")
    page.click("#role-plan")
    page.wait_for_selector("#role-answer .refused, #role-answer .plan li")
    said = [each for each in seen.errors if "status of 401" in each or "status of 409" in each]
    assert said  # Chromium itself notes answers that refuse.
    seen.errors[:] = [each for each in seen.errors if each not in said]


def test_what_messages_bring_along_stays_text(stage, seen):
    evil = "<img src=x onerror=\"document.title='caught'\"><script>document.title='caught'</script>"
    stage.group.twinlog("send", "evil", evil, "--property", "note=<b>bold</b>", "--keys", "k1")
    page = seen.open()
    page.fill("#peek-topic", "evil")
    page.fill("#peek-count", "1")
    page.press("#peek-count", "Enter")
    page.wait_for_selector("#found pre")
    assert page.text_content("#found pre") == evil
    assert page.locator("#found img, #found b").count() == 0
    seen.open("?topic=%3Cscript%3Ealert(1)%3C/script%3E")
    assert page.input_value("#peek-topic") == "<script>alert(1)</script>"
    assert "caught" not in page.title()


def test_the_keyboard_reaches_everything(seen):
    """Tab goes through all that can be used, in the order of the page; Enter opens the dialog, Escape closes it."""
    page = seen.open()
    wanted = page.evaluate(
        "[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility() && !e.disabled).length"
    )
    reached = set()
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "(() => { const e = document.activeElement; e.dataset.n ??= Math.random(); return e.dataset.n })()"
            )
        )
    assert len(reached) >= wanted
    page.focus("#open-roles")
    page.keyboard.press("Enter")
    assert page.is_visible("#role-form")
    page.keyboard.press("Escape")
    assert not page.is_visible("#role-form")
    assert page.evaluate("document.activeElement.id") == "open-roles"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_serious_issue(stage, browser, scheme, viewport):
    """Contrast, names, roles, order of headings; with a slave away, so that every part shows, and the dialog open."""
    context = browser.new_context(viewport=viewport, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(f"{stage.dashboard.url}?topic=orders")
    page.wait_for_selector("#live.on")
    page.add_script_tag(path=str(AXE))
    assert bad_things(page) == []
    page.click("#open-roles")
    page.click("#role-plan")
    page.wait_for_selector("#role-answer .plan li")
    assert bad_things(page) == []
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    assert not wide, "the page scrolls sideways"
    context.close()


def test_axe_finds_no_serious_issue_while_a_slave_is_away(stage, browser):
    slave = stage.slave()
    with stage.standing_still(slave):
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport=DESKTOP, color_scheme=scheme, bypass_csp=True)
            page = context.new_page()
            page.goto(stage.dashboard.url)
            page.wait_for_selector("#issues .issues li", timeout=20_000)
            page.add_script_tag(path=str(AXE))
            assert bad_things(page) == []
            context.close()
