"""Writes the pictures of docs/page.md: the demo runs, and a browser looks at its page: `python -m tools.page_pictures`.

Debian's chromium is needed.  The pictures are those of one run; look at them before you commit them.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, Final

from PIL import Image
from playwright.sync_api import Browser, BrowserContext, sync_playwright

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURES: Final = ROOT / "docs" / "page"
DESKTOP: Final = {"width": 1000, "height": 700}
PHONE: Final = {"width": 390, "height": 844}
COLOURS: Final = 64  # of a picture's palette: enough for flat colours, and small
DEADLINE_S: Final = 240.0
LOAD: Final = "50s"
MUCH_WEB: Final = 5  # pods that run


@contextmanager
def running_demo(runs: Path) -> Iterator[str]:
    """The demo inside the block; yields the address of its page."""
    command = [sys.executable, "-m", "experiments.demo", "--page", "--no-faults", "--duration", LOAD]
    process = subprocess.Popen(
        [*command, "--run-dir", str(runs)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    addresses: Queue[str] = Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("page: "):
                addresses.put(line.removeprefix("page: ").strip())

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield addresses.get(timeout=DEADLINE_S)
    finally:
        process.terminate()
        process.wait()
        reader.join()


def is_full(context: BrowserContext, base: str) -> bool:
    """True once web runs at its height, so that jobs have made room."""
    view = context.request.get(f"{base}/api/now").json()
    return bool(view) and sum(one["running"] for one in view["deployments"]) >= MUCH_WEB


def take(browser: Browser, address: str, path: str, name: str, **options: Any) -> None:
    """Write one picture of a page."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.goto(address)
    page.goto(address.partition("/?")[0] + path)
    page.get_by_role("heading", level=1).wait_for()
    taken = Image.open(io.BytesIO(page.screenshot(full_page=True)))
    taken.convert("RGB").quantize(COLOURS).save(PICTURES / f"{name}.png", optimize=True)
    context.close()


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is not installed (apt-get install chromium)")
    PICTURES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as runs,
        running_demo(Path(runs)) as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        watching = browser.new_context()
        watching.new_page().goto(address)
        ends_s = time.monotonic() + DEADLINE_S
        while not is_full(watching, address.partition("/?")[0]):
            if time.monotonic() > ends_s:
                raise SystemExit("web did not grow: is the demo well?")
            time.sleep(0.5)
        take(browser, address, "/", "now", viewport=DESKTOP)
        take(browser, address, "/what-if?deployment=web&replicas=9", "what-if", viewport=DESKTOP)
        take(browser, address, "/jobs/default/digits-b", "job", viewport=DESKTOP)
        take(browser, address, "/time", "time", viewport=DESKTOP, color_scheme="dark")
        take(browser, address, "/waiting", "waiting-on-a-phone", viewport=PHONE, color_scheme="dark")
        browser.close()
    for picture in sorted(PICTURES.glob("*.png")):
        print(picture.relative_to(ROOT), picture.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
