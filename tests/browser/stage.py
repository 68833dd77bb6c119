"""A group of three with a dashboard, and Debian's chromium before it."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, field
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.support.process_group.ports import HOST, free_port
from tests.support.process_group.process import PROGRAM, Process
from tests.support.process_group.roles import Group, RoleBroker, running

TOKEN = "a-token-for-the-browser-tests"
CHROMIUM = "/usr/bin/chromium"
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


class Dashboard(Process):
    """`twinlog dashboard` of a group."""

    def __init__(self, root: Path, namesrv: str) -> None:
        self.port = free_port((0,))
        self.url = f"http://{HOST}:{self.port}/"
        root.mkdir()
        token_file = root / "token"
        token_file.write_text(TOKEN + "\n")
        token_file.chmod(0o600)
        command = [PROGRAM, "dashboard", "-n", namesrv, "--listen", f"{HOST}:{self.port}"]
        command += ["--token-file", str(token_file), "--audit", str(root / "audit")]
        super().__init__("twinlog dashboard", command, log=root / "dashboard.log")

    def start(self) -> None:
        super().start()
        self.wait_ready()


@define
class Stage:
    """The group, its dashboard, and what goes on there."""

    group: Group
    dashboard: Dashboard
    _traffic: list[subprocess.Popen[bytes]] = field(factory=list)

    def member(self, name: str) -> RoleBroker:
        return next(each for each in self.group.members if each.label == name)

    def slave(self) -> RoleBroker:
        """One that follows now."""
        listed = self.group.listed()
        return next(each for each in self.group.members if listed[each.label]["role"] == "slave")

    @contextmanager
    def standing_still(self, member: RoleBroker) -> Iterator[None]:
        """It does nothing within the block."""
        member.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            member.send_signal(signal.SIGCONT)

    @contextmanager
    def traffic(self, *, rate: int, body: Path) -> Iterator[None]:
        """Somebody sends within the block; `body`: a file with what."""
        command = [PROGRAM, "send", "-n", self.group.namesrv.address, "orders", "--file", str(body)]
        command += ["--count", "1000000", "--rate", str(rate), "--keys", "order-4711", "--tags", "paid"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


@contextmanager
def staged(directory: Path, **settings: str) -> Iterator[Stage]:
    """A group of three that follows, with a dashboard."""
    with ExitStack() as stack:
        group = stack.enter_context(running(directory / "group", 3, **settings))
        dashboard = stack.enter_context(Dashboard(directory / "dashboard", group.namesrv.address))
        yield Stage(group, dashboard)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Without its sandbox where the super-user runs it, which it refuses otherwise."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield browser
        finally:
            browser.close()


@define
class Visit:
    """One page in a browser, and what went wrong there."""

    page: Page
    url: str
    errors: list[str] = field(factory=list)
    strangers: list[str] = field(factory=list)  # Requests to anybody else.

    def __attrs_post_init__(self) -> None:
        self.page.on(
            "console", lambda said: self.errors.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._look_at(request))

    def _look_at(self, request: object) -> None:
        url = str(getattr(request, "url", ""))
        if not url.startswith(self.url):
            self.strangers.append(url)

    def open(self, path: str = "") -> Page:
        """Load it, and wait until it is live."""
        self.page.goto(self.url + path)
        self.page.wait_for_selector("#live.on")
        return self.page

    def until(self, words: str, where: str = "#headline", *, seconds: float = 40) -> None:
        """Wait for words at a place of the page."""
        expression = "([where, words]) => document.querySelector(where)?.textContent.includes(words)"
        self.page.wait_for_function(expression, arg=[where, words], timeout=seconds * 1000)


def visit(context: BrowserContext, url: str) -> Visit:
    """A new page, not loaded yet."""
    return Visit(context.new_page(), url)


if __name__ == "__main__":  # A cluster and a dashboard to look at by hand, until Ctrl-C.
    import tempfile

    with tempfile.TemporaryDirectory() as scratch, staged(Path(scratch) / "stage") as stage:
        print(stage.dashboard.url, "token", TOKEN, flush=True)
        sys.stdin.read()
