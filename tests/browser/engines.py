"""Drive Firefox and WebKit (Safari's engine) with the commands of W3C WebDriver.

WebKit receives them over HTTP through Debian's ``WebKitWebDriver``. Firefox receives them through its
Marionette socket, which geckodriver would use too, but Debian does not package it. WebKit needs a screen, for
which Xvfb is started.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
WEBKIT, XVFB = shutil.which("WebKitWebDriver"), shutil.which("Xvfb")
MINIBROWSER = next(Path("/usr/lib").glob("*/webkit2gtk-4.*/MiniBrowser"), None)
MISSING = {
    "firefox": None if FIREFOX else "needs Firefox: make test-engines",
    "webkit": None if WEBKIT and XVFB and MINIBROWSER else "needs WebKit and Xvfb: make test-engines",
}
TIMEOUT = 60  # seconds, for a browser to start and for any response
SIZE = {"width": 1280, "height": 860}
VIEW = "document.querySelector('#intus-graph').intusView"
KEYS = {
    "Enter": "\ue007",
    "Escape": "\ue00c",
    "Control": "\ue009",
    "Shift": "\ue008",
    "ArrowLeft": "\ue012",
    "ArrowUp": "\ue013",
    "ArrowRight": "\ue014",
    "ArrowDown": "\ue015",
}
#: Collects errors and warnings of a page from its first line on, because neither engine reports them to its
#: driver.
COLLECTOR = """<script>
window.problems = [];
const describe = (event) => event.message ?? event.reason ?? event.blockedURI ?? event.target?.src;
const collect = (event) => problems.push(`${event.type}: ${describe(event)}`);
addEventListener("error", collect, true);
addEventListener("unhandledrejection", collect);
addEventListener("securitypolicyviolation", collect, true);
console.error = console.warn = (...parts) => problems.push(parts.join(" "));
</script>"""


def with_collector(html: str, script: str = "") -> str:
    """Add code to a page that collects errors in ``problems``, and a script that runs first."""
    head = "<head>" if "<head>" in html else "<!doctype html>"
    return html.replace(head, f"{head}{COLLECTOR}<script>{script}</script>", 1)


class Engine:
    """A browser with one window that follows the system's theme and prefers less motion."""

    version: str
    _process: subprocess.Popen[bytes]

    def _send(self, command: str, **given: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT)

    # -- the page ---------------------------------------------------------------------------------------

    def goto(self, address: str) -> None:
        """Load a page, even if only its hash differs."""
        self._send("Navigate", url="about:blank")
        self._send("Navigate", url=address)

    def js(self, expression: str) -> Any:
        return self._send("ExecuteScript", script=f"return ({expression});", args=[])

    def until(self, expression: str, seconds: float = 20) -> Any:
        """Wait until a JavaScript expression is truthy, and return its value."""
        end = time.monotonic() + seconds
        while not (value := self.js(expression)):
            assert time.monotonic() < end, f"{expression} did not become true within {seconds} s"
            time.sleep(0.02)
        return value

    def switch_to(self, frame: int | None) -> None:
        """Send further commands to the frame of this number, or with None to the window."""
        self._send("SwitchToFrame", id=frame)

    def resize(self, width: int, height: int) -> None:
        self._send("SetWindowRect", width=width, height=height)

    # -- input ------------------------------------------------------------------------------------------

    def _act(self, *sources: dict[str, Any]) -> None:
        self._send("PerformActions", actions=list(sources))

    def release(self) -> None:
        """Release all keys and buttons."""
        self._send("ReleaseActions")

    def press(self, *keys: str) -> None:
        both = [(KEYS.get(key, key), kind) for key in keys for kind in ("keyDown", "keyUp")]
        self._act(_source("key", *({"type": kind, "value": key} for key, kind in both)))

    def hold(self, key: str) -> None:
        self._act(_source("key", {"type": "keyDown", "value": KEYS[key]}))

    def point(self, x: float, y: float) -> None:
        self._act(_pointer("mouse", _move(x, y)))

    def click(self, x: float, y: float, times: int = 1) -> None:
        self._act(_pointer("mouse", _move(x, y), *[_DOWN, _UP] * times))

    def click_on(self, selector: str) -> None:
        self.js(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{ block: 'nearest' }})")
        x, y, width, height = self.rect(selector)
        self.click(x + width / 2, y + height / 2)

    def drag(self, x: float, y: float, dx: float, dy: float, by: str = "mouse") -> None:
        path = [_move(x + dx * share, y + dy * share) for share in (0.3, 0.7, 1)]
        self._act(_pointer(by, _move(x, y), _DOWN, *path, _UP))

    def pinch(self, x: float, y: float, before: float, after: float) -> None:
        """Move two fingers on both sides of a point from one distance to another."""

        def finger(side: int) -> dict[str, Any]:
            path = [_move(x + side * far, y) for far in ((before + after) / 2, after)]
            return _pointer("touch", _move(x + side * before, y), _DOWN, *path, _UP) | {
                "id": f"finger {side}"
            }

        self._act(finger(-1), finger(1))

    def wheel(self, x: float, y: float, dx: float, dy: float) -> None:
        place = {"x": round(x), "y": round(y), "deltaX": round(dx), "deltaY": round(dy)}
        self._act(_source("wheel", {"type": "scroll", "duration": 0, **place}))

    def rect(self, selector: str) -> list[float]:
        """Return left, top, width and height of the first element that matches."""
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        return self.js(f"(({{ x, y, width, height }}) => [x, y, width, height])({box})")


def _source(kind: str, *actions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": kind, "id": kind, "actions": list(actions), **more}


def _pointer(by: str, *actions: dict[str, Any]) -> dict[str, Any]:
    return _source("pointer", *actions, parameters={"pointerType": by}) | {"id": by}


def _move(x: float, y: float) -> dict[str, Any]:
    return {"type": "pointerMove", "duration": 20, "x": round(x), "y": round(y)}


_DOWN, _UP = ({"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp"))


class Firefox(Engine):
    def __init__(self, folder: Path, *, dark: bool = False) -> None:
        folder.mkdir()
        settings = {
            "marionette.port": 0,
            "browser.shell.checkDefaultBrowser": False,
            "browser.aboutwelcome.enabled": False,
            "datareporting.policy.dataSubmissionEnabled": False,
            "network.captive-portal-service.enabled": False,
            "network.connectivity-service.enabled": False,
            "app.normandy.enabled": False,
            "ui.systemUsesDarkTheme": int(dark),
            "ui.prefersReducedMotion": 1,
        }
        lines = (f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in settings.items())
        (folder / "user.js").write_text("".join(lines))
        assert FIREFOX is not None
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [FIREFOX, "--headless", "--marionette", "--no-remote", "--profile", str(folder)],
                env=os.environ | {"HOME": str(folder)},
                stdout=log,
                stderr=log,
            )
        self._numbers = itertools.count(1)
        self._socket = socket.create_connection(("127.0.0.1", self._port(folder)), TIMEOUT)
        self._file = self._socket.makefile("rb")
        self._read()
        self.version = f"Firefox {self._send('NewSession')['capabilities']['browserVersion']}"
        self.resize(**SIZE)

    def _port(self, folder: Path) -> int:
        end = time.monotonic() + TIMEOUT
        port = folder / "MarionetteActivePort"
        while not (port.exists() and port.read_text().strip()):
            assert self._process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end, f"Firefox did not start within {TIMEOUT} s"
            time.sleep(0.05)
        return int(port.read_text())

    def _read(self) -> Any:
        digits = b"".join(iter(lambda: self._file.read(1), b":"))
        return json.loads(self._file.read(int(digits)))

    def _send(self, command: str, **given: Any) -> Any:
        text = json.dumps([0, next(self._numbers), f"WebDriver:{command}", given]).encode()
        self._socket.sendall(b"%d:%s" % (len(text), text))
        _, _, error, answer = self._read()
        assert error is None, f"{command}: {error['message']}"
        return answer["value"] if set(answer) == {"value"} else answer

    def close(self) -> None:
        self._file.close()
        self._socket.close()
        super().close()


#: The HTTP method and path of W3C WebDriver's commands.
_ENDPOINTS = {
    "NewSession": ("POST", ""),
    "Navigate": ("POST", "/url"),
    "ExecuteScript": ("POST", "/execute/sync"),
    "SwitchToFrame": ("POST", "/frame"),
    "SetWindowRect": ("POST", "/window/rect"),
    "PerformActions": ("POST", "/actions"),
    "ReleaseActions": ("DELETE", "/actions"),
}


class WebKit(Engine):
    def __init__(self, folder: Path, *, dark: bool = False) -> None:
        (folder / "gtk-3.0").mkdir(parents=True)
        (folder / "gtk-3.0" / "settings.ini").write_text("[Settings]\ngtk-enable-animations=0\n")
        assert XVFB is not None
        assert WEBKIT is not None
        read, write = os.pipe()
        self._log = (folder / "log").open("wb")
        quiet = {"stdout": self._log, "stderr": self._log}
        command = [XVFB, "-displayfd", str(write), "-nolisten", "tcp", "-screen", "0", "1400x1000x24"]
        self._screen = subprocess.Popen(command, pass_fds=[write], **quiet)
        os.close(write)
        with os.fdopen(read) as output:
            display = f":{output.readline().strip()}"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {
            **{f"XDG_{name}_HOME": str(folder) for name in ("CONFIG", "CACHE", "DATA")},
            "DISPLAY": display,
            "GTK_THEME": "Adwaita:dark" if dark else "Adwaita",
            "WEBKIT_DISABLE_COMPOSITING_MODE": "1",  # there is no graphics card
        }
        self._process = subprocess.Popen(
            [WEBKIT, f"--port={port}"], env=os.environ | environment | {"HOME": str(folder)}, **quiet
        )
        self._address = f"http://127.0.0.1:{port}/session"
        browser = {"binary": str(MINIBROWSER), "args": ["--automation"]}
        session = self._new_session({"alwaysMatch": {"webkitgtk:browserOptions": browser}})
        self._address += f"/{session['sessionId']}"
        self.version = f"WebKitGTK {session['capabilities']['browserVersion']}"
        self.resize(**SIZE)

    def _new_session(self, capabilities: dict[str, Any]) -> Any:
        end = time.monotonic() + TIMEOUT
        while True:
            try:
                return self._send("NewSession", capabilities=capabilities)
            except urllib.error.URLError:  # the driver does not listen yet
                assert time.monotonic() < end, f"WebKitWebDriver did not start within {TIMEOUT} s"
                time.sleep(0.05)

    def _send(self, command: str, **given: Any) -> Any:
        method, path = _ENDPOINTS[command]
        body = json.dumps(given).encode() if method == "POST" else None
        request = urllib.request.Request(self._address + path, body, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{command}: {json.load(error)['value']['message']}") from None

    def wheel(self, x: float, y: float, dx: float, dy: float) -> None:
        super().wheel(x, y, dx, dy)
        self.release()  # else the driver sends only the difference to the previous wheel event

    def close(self) -> None:
        with urllib.request.urlopen(urllib.request.Request(self._address, method="DELETE"), timeout=TIMEOUT):
            pass
        super().close()
        self._screen.terminate()
        self._screen.wait(TIMEOUT)
        self._log.close()


KINDS: dict[str, type[Engine]] = {"firefox": Firefox, "webkit": WebKit}
