"""A real headless Chromium, driven over WebDriver with nothing but the standard library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

#: Set where the environment promises a browser: then its absence is a failure and not a skip.
PROMISE = "SGLHW_BROWSER"

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip


def find_browser() -> tuple[str, str]:
    """Return the paths of the browser and its driver; skip the test where there are none, or fail if promised."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if browser and driver:
        return browser, driver
    message = "needs chromium and chromedriver on PATH"
    if os.environ.get(PROMISE) == "1":
        pytest.fail(f"{message}, which {PROMISE}=1 promises", pytrace=False)
    pytest.skip(message)


class Browser:
    """One window."""

    def __init__(self, profile: Path, size: tuple[int, int] = (1400, 900)) -> None:
        binary, driver = find_browser()
        self._driver = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self._driver.stdout is not None
        port = next(line.split()[-1].rstrip(".") for line in self._driver.stdout if "successfully on port" in line)
        self._url = f"http://127.0.0.1:{port}/session"
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
        arguments = [*_FLAGS, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
        options = {"binary": binary, "args": arguments}
        wanted = {
            "capabilities": {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        }
        self._url += "/" + self._post("", wanted)["sessionId"]

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            self._url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with self._open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def open(self, page: Path, fragment: str = "") -> None:
        """Open a page afresh."""
        self._post("/url", {"url": "about:blank"})
        self._post("/url", {"url": page.resolve().as_uri() + fragment})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function in the page and return its result."""
        return self._post("/execute/sync", {"script": script, "args": list(arguments)})

    def command(self, name: str, **parameters: Any) -> Any:
        """Send a command of the DevTools protocol."""
        return self._post("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._post("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def dark(self, on: bool = True) -> None:
        """Prefer a dark page."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def resize(self, width: int, height: int) -> None:
        """Give the page another size."""
        self.command(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def scripts(self, on: bool) -> None:
        """Allow scripts of the page or forbid them."""
        self.command("Emulation.setScriptExecutionDisabled", value=not on)

    def screenshot(self, path: Path) -> None:
        """Save what is in sight."""
        path.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """What the console said of errors."""
        entries = self._post("/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]

    def close(self) -> None:
        """End the browser and its driver."""
        try:
            with self._open(urllib.request.Request(self._url, method="DELETE"), timeout=30):
                pass
        finally:
            self._driver.terminate()
            self._driver.wait(30)
            if self._driver.stdout is not None:
                self._driver.stdout.close()
