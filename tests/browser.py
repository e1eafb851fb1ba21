"""A Chromium without a window, driven over its own pipe: clicks, keys, what the console says and what the network is asked."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest


def find_browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no chromium on this machine; install it to see the page in a browser")
    return found


class Browser:
    """One tab. `console` collects messages and exceptions, `requests` the addresses that were asked for."""

    def __init__(self, profile: Path, *, size: tuple[int, int] = (1280, 900), dark: bool = False) -> None:
        self.console: list[str] = []
        self.requests: list[str] = []
        self._last = 0
        self._left = b""
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # The browser reads from descriptor 3 and writes to 4; high ones cannot be in their way.
        given = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 50) for descriptor in (theirs_in, theirs_out)]
        self._process = subprocess.Popen(
            [
                "bash", "-c", f'exec "$0" "$@" 3<&{given[0]} 4>&{given[1]}', find_browser(), "--headless", "--no-sandbox",
                "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={profile}",
                f"--window-size={size[0]},{size[1]}", "--hide-scrollbars", "about:blank",
            ],
            pass_fds=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for descriptor in (theirs_in, theirs_out, *given):
            os.close(descriptor)
        self._in, self._out = ours_in, ours_out
        os.set_blocking(self._in, False)
        self._session: str | None = None
        tabs = self._call("Target.getTargets")["targetInfos"]
        tab = next(one["targetId"] for one in tabs if one["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=tab, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call(
            "Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False
        )
        scheme = "dark" if dark else "light"
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for descriptor in (self._in, self._out):
            os.close(descriptor)
        self._process.terminate()
        self._process.wait(20)

    def open(self, path: Path, fragment: str = "") -> None:
        self._call("Page.navigate", url="about:blank")
        self.requests.clear()
        self.console.clear()
        self._call("Page.navigate", url=path.as_uri() + fragment)
        self.wait("document.readyState === 'complete' && !document.body.innerText.includes('Reading the questions')")

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the page, which its policy does not keep the browser itself from doing."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not self.value(expression):
            assert time.monotonic() < end, f"it never came true: {expression}"
            time.sleep(0.03)

    def click(self, selector: str) -> None:
        """Click in the middle of what a selector finds first, as a hand would."""
        place = self.value(
            f"(() => {{ const found = document.querySelector({json.dumps(selector)}); found.scrollIntoView({{ block: 'center' }});"
            " const box = found.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def press(self, key: str, code: int, text: str = "") -> None:
        self._call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, text=text)
        self._call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def choose(self, name: str, value: str) -> None:
        """Set a field of the form as a hand does, and wait for what follows."""
        self.value(
            f"(() => {{ const field = document.querySelector('[name={name}]'); field.value = {json.dumps(value)};"
            " field.dispatchEvent(new Event('input', { bubbles: true })); })()"
        )
        time.sleep(0.3)

    def picture(self) -> bytes:
        return base64.b64decode(self._call("Page.captureScreenshot")["data"])

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            reply = self._receive()
            if reply is None:
                assert self._process.poll() is None, "the browser is gone"
                time.sleep(0.005)
            elif reply.get("id") == self._last:
                assert "error" not in reply, reply
                result: dict[str, Any] = reply["result"]
                return result
            elif "method" in reply:
                self._heard(reply["method"], reply["params"])
        message_ = f"the browser has not answered {method} for a minute"
        raise TimeoutError(message_)

    def _heard(self, event: str, told: dict[str, Any]) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif event == "Runtime.exceptionThrown":
            self.console.append(str(told["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled":
            self.console.append(str(told["args"]))
        elif event == "Log.entryAdded":
            self.console.append(told["entry"]["text"])

    def _receive(self) -> dict[str, Any] | None:
        while b"\0" not in self._left:
            try:
                more = os.read(self._in, 1 << 20)
            except BlockingIOError:
                return None
            if not more:
                return None
            self._left += more
        line, self._left = self._left.split(b"\0", 1)
        reply: dict[str, Any] = json.loads(line)
        return reply
