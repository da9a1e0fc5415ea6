"""Chromium without a window, driven through chromedriver by the few WebDriver commands that the tests need."""

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final, Self

import httpx

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER: Final = shutil.which("chromedriver")
FLAGS: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars",
    # One process draws one page after another; a new one for each would cost more than the page.
    "--renderer-process-limit=1", "--disable-site-isolation-trials", "--disable-features=BackForwardCache",
)  # fmt: skip
TEXT: Final = "document.querySelector(arguments[0])?.innerText"
SHOTS: Final = os.environ.get("HEADGATE_TEST_SCREENSHOTS")
"""A folder where pictures of the page are kept, to be looked at."""
_ELEMENT: Final = "element-6066-11e4-a52e-4f735466cecf"
_PATIENCE: Final = 60.0
_LOOK: Final = """
const done = arguments[arguments.length - 1], began = Date.now();
const look = () => {
  let value = null;
  try { value = SCRIPT } catch (TypeError) { }
  if (value || Date.now() - began > 2000) done(value); else setTimeout(look, 40);
};
look();
"""
"""Has the page itself look again and again: each question from outside takes the browser ten milliseconds."""


class Browser:
    """One browser with one page. Not async: the page's server must run in a loop of another thread."""

    def __init__(self, process: subprocess.Popen[bytes], http: httpx.Client, session: str) -> None:
        self._process = process
        self._http = http
        self._session = session

    @classmethod
    def start(cls, profile: Path) -> Self:
        assert CHROMIUM
        assert DRIVER
        log = profile / "driver.log"
        profile.mkdir(parents=True, exist_ok=True)
        process, port = _driver(log)
        try:
            http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
            options = {
                "binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile / 'data'}"],
                "perfLoggingPrefs": {"enableNetwork": True, "enablePage": False},
            }  # fmt: skip
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
            answer = http.post("/session", json={"capabilities": {"alwaysMatch": wanted}})
            assert answer.status_code == 200, answer.text
            return cls(process, http, answer.json()["value"]["sessionId"])
        except BaseException:
            process.kill()
            process.wait()
            raise

    def close(self) -> None:
        try:
            self._http.delete(f"/session/{self._session}")
        finally:
            self._http.close()
            self._process.kill()
            self._process.wait()

    def _do(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = self._http.request(method, f"/session/{self._session}{path}", json=body)
        value = answer.json()["value"]
        assert answer.status_code == 200, f"{path} {body}: {value['error']}: {value['message'].splitlines()[0]}"
        return value

    def cdp(self, command: str, **params: Any) -> Any:
        return self._do("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def open(self, url: str) -> None:
        self._do("POST", "/url", {"url": url})

    def look_like(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what a function body returns."""
        return self._do("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, script: str, *arguments: Any) -> Any:
        """Return the first true value that an expression has; what is not there yet is waited for too."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            body = {"script": _LOOK.replace("SCRIPT", script), "args": list(arguments)}
            answer = self._http.post(f"/session/{self._session}/execute/async", json=body)
            if answer.status_code == 200 and (value := answer.json()["value"]):
                return value
            time.sleep(0 if answer.status_code == 200 else 0.08)  # another page came meanwhile
        page = self.run("return document.body.innerText")
        raise AssertionError(f"not within {_PATIENCE} s: {script} {arguments}\n{page}")

    def click(self, selector: str) -> None:
        """Click as a person does: what covers the element gets it."""
        self._do("POST", f"/element/{self._find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        found = self._find(selector)
        self._do("POST", f"/element/{found}/clear", {})
        self._do("POST", f"/element/{found}/value", {"text": text})

    def press(self, key: str) -> None:
        """Press one key, wherever the focus is."""
        keys = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._do("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": keys}]})

    def screenshot(self, file: Path) -> None:
        file.write_bytes(base64.b64decode(self._do("GET", "/screenshot")))

    def console(self) -> list[str]:
        """Return what was logged since the last call: warnings and errors."""
        entries = self._do("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]

    def requests(self) -> list[str]:
        """Return the URLs that the page asked for since the last call."""
        entries = self._do("POST", "/se/log", {"type": "performance"})
        told = [json.loads(entry["message"])["message"] for entry in entries]
        return [one["params"]["request"]["url"] for one in told if one["method"] == "Network.requestWillBeSent"]

    def _find(self, selector: str) -> str:
        found: str = self._do("POST", "/element", {"using": "css selector", "value": selector})[_ELEMENT]
        return found


def _driver(log: Path) -> tuple["subprocess.Popen[bytes]", int]:
    """Start a driver, and return it with its port; it ends where another program took the port that it chose."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        with log.open("wb") as output:
            process = subprocess.Popen([DRIVER or "", "--port=0"], stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None and time.monotonic() < deadline:
            words = log.read_text(errors="replace").partition("successfully on port ")[2]
            if "." in words:
                return process, int(words.partition(".")[0])
            time.sleep(0.02)
        process.kill()
        process.wait()
    raise AssertionError(f"chromedriver does not listen: {log.read_text(errors='replace')}")


def picture(browser: Browser, name: str) -> None:
    """Keep a picture of the page, where somebody wants to look at it."""
    if SHOTS:
        browser.screenshot(Path(SHOTS) / f"{name}.png")
