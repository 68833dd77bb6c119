"""The pictures of docs/operating: the dashboard of a real cluster in four states, and the page of a ledger.

    .venv/bin/python -m tests.browser.screenshots [DIR]       docs/operating/images, about two minutes
    .venv/bin/python -m tests.browser.screenshots --ledger    only that of the ledger

They are WebP, which chromium itself makes of its pictures: a tenth of the size.
"""

import base64
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext

from tests.browser.stage import DESKTOP, PHONE, Stage, chromium, staged
from tests.cluster.pipeline.ledger_history import history
from tests.support.process_group.process import PROGRAM
from twinlog.cluster.pipeline.report.ledger_page import ledger_page

IMAGES = Path(__file__).parents[2] / "docs" / "operating" / "images"
# A slave catches up with 1.5 MB/s at most, so that there is time to look.
SETTINGS = {
    "haFlowControlEnable": "true",
    "maxHaTransferByteInSecond": "1500000",
    "haAutoRewind": "false",
    "mappedFileSizeCommitLog": str(16 << 20),
}
TO_WEBP = """async (png) => {
  const image = new Image(); image.src = "data:image/png;base64," + png; await image.decode();
  const canvas = document.createElement("canvas"); canvas.width = image.width; canvas.height = image.height;
  canvas.getContext("2d").drawImage(image, 0, 0);
  return canvas.toDataURL("image/webp", 0.8).split(",")[1];
}"""


SCHEMES = {
    "plan": ("light",),
    "fine": ("light", "dark"),
    "behind": ("dark", "light"),
    "no-master": ("light", "dark"),
    "diverged": ("dark", "light"),
}


def shoot(browser: Browser, url: str, directory: Path, name: str, *, whole: bool = False) -> None:
    """What one sees first on a desktop and on a phone; where `whole` the whole page, in both colour schemes."""
    for number, (size, viewport) in enumerate((("desktop", DESKTOP), ("phone", PHONE))):
        for scheme in ("light", "dark") if whole else SCHEMES[name][number : number + 1]:
            context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
            page = context.new_page()
            page.goto(url)
            page.wait_for_selector("#live.on")
            if name == "plan":
                page.click("#open-roles")
                page.click("#role-plan")
                page.wait_for_selector("#role-answer .plan li")
            page.wait_for_timeout(1200)
            png = page.screenshot(full_page=whole)
            keep(context, png, directory / f"dashboard-{name}-{size}-{scheme}.webp")
            if whole:
                (directory / f"dashboard-{name}-{size}-{scheme}.png").write_bytes(png)
            context.close()


def keep(context: BrowserContext, png: bytes, file: Path) -> None:
    """Write a picture as WebP."""
    webp = context.new_page().evaluate(TO_WEBP, base64.b64encode(png).decode())
    file.write_bytes(base64.b64decode(webp))


def shoot_ledger(browser: Browser, directory: Path) -> None:
    """The upper half of a ledger's page: replicas, and what was proved when."""
    context = browser.new_context(viewport={"width": 1160, "height": 1320}, color_scheme="light")
    page = context.new_page()
    page.set_content(ledger_page(history()))
    keep(context, page.screenshot(), directory / "ledger.webp")
    context.close()


def play(stage: Stage, browser: Browser, directory: Path, scratch: Path, *, whole: bool) -> None:
    """The four states, one after the other."""
    url, group = stage.dashboard.url, stage.group
    body = scratch / "body"
    body.write_bytes(b"an order, with all that belongs to it. " * 100)
    group.twinlog("topic", "create", "orders", "--queues", "4")
    reader = subprocess.Popen(
        [PROGRAM, "consume", "orders", "-n", group.namesrv.address, "--group", "billing", "--follow"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    warm = browser.new_page()
    warm.goto(url)
    try:
        with stage.traffic(rate=150, body=body):
            time.sleep(25)
            shoot(browser, url, directory, "fine", whole=whole)
            shoot(browser, url, directory, "plan")
            with stage.standing_still(stage.member("broker-a-2")), stage.traffic(rate=600, body=body):
                time.sleep(16)
            time.sleep(2.5)
            shoot(browser, url, directory, "behind", whole=whole)
        group.twinlog("wait", "level", "--timeout", "50")
    finally:
        reader.terminate()
        reader.wait()
    first, second, third = group.members
    second.kill()
    third.kill()
    group.twinlog("send", "orders", "nobody else has this", "--count", "3", status=None)
    first.kill()
    second.start()
    third.start()
    time.sleep(8)
    shoot(browser, url, directory, "no-master", whole=whole)
    group.twinlog("failover", "--candidate", second.label, "--yes", status=None)
    first.start()
    group.twinlog("wait", f"{first.label}=diverged", "--timeout", "40")
    time.sleep(3)
    shoot(browser, url, directory, "diverged", whole=whole)
    warm.close()


def main() -> None:
    """All of them."""
    if sys.argv[1:] == ["--ledger"]:
        with chromium() as browser:
            shoot_ledger(browser, IMAGES)
        return
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    directory.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        staged(Path(scratch) / "s", **SETTINGS) as stage,
        chromium() as browser,
    ):
        shoot_ledger(browser, directory)
        play(stage, browser, directory, Path(scratch), whole=len(sys.argv) > 2)


if __name__ == "__main__":
    main()
