"""Firefox and WebKit (Safari's engine), driven as W3C WebDriver says: the same commands, each its own way.

WebKit's go to Debian's ``WebKitWebDriver`` over HTTP. Firefox's go to its Marionette, the socket to which
geckodriver, which Debian has not, would send them. WebKit needs a screen: an Xvfb of its own.
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
PATIENCE = 60  # seconds for a browser to begin, and for any one answer
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
#: What a page of ours hears from its first line on, for neither engine tells its driver.
EARS = """<script>
window.troubles = [];
const what = (event) => event.message ?? event.reason ?? event.blockedURI ?? event.target?.src;
const hear = (event) => troubles.push(`${event.type}: ${what(event)}`);
addEventListener("error", hear, true);
addEventListener("unhandledrejection", hear);
addEventListener("securitypolicyviolation", hear, true);
console.error = console.warn = (...words) => troubles.push(words.join(" "));
</script>"""


def with_ears(html: str, script: str = "") -> str:
    """A page that also keeps what it complains of, in ``troubles``; ``script`` runs before its own."""
    head = "<head>" if "<head>" in html else "<!doctype html>"
    return html.replace(head, f"{head}{EARS}<script>{script}</script>", 1)


class Engine:
    """A browser with one window, light or dark as its system is, that was asked for less motion."""

    version: str
    _process: subprocess.Popen[bytes]

    def _ask(self, command: str, **given: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)

    # -- the page ---------------------------------------------------------------------------------------

    def goto(self, address: str) -> None:
        """Load a page, also where only its hash is another."""
        self._ask("Navigate", url="about:blank")
        self._ask("Navigate", url=address)

    def js(self, expression: str) -> Any:
        return self._ask("ExecuteScript", script=f"return ({expression});", args=[])

    def until(self, expression: str, seconds: float = 20) -> Any:
        """Wait for a JavaScript expression to be truthy; returns what it is."""
        end = time.monotonic() + seconds
        while not (value := self.js(expression)):
            assert time.monotonic() < end, f"{expression} did not become true within {seconds} s"
            time.sleep(0.02)
        return value

    def turn_to(self, frame: int | None) -> None:
        """Speak from now on to the page in the frame of this number, or with None to the window's own."""
        self._ask("SwitchToFrame", id=frame)

    def resize(self, width: int, height: int) -> None:
        self._ask("SetWindowRect", width=width, height=height)

    # -- hands ------------------------------------------------------------------------------------------

    def _act(self, *sources: dict[str, Any]) -> None:
        self._ask("PerformActions", actions=list(sources))

    def release(self) -> None:
        """Let go of what is held down."""
        self._ask("ReleaseActions")

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
        way = [_move(x + dx * share, y + dy * share) for share in (0.3, 0.7, 1)]
        self._act(_pointer(by, _move(x, y), _DOWN, *way, _UP))

    def pinch(self, x: float, y: float, before: float, after: float) -> None:
        """Two fingers at both sides of a place, from one distance to it to another."""

        def finger(side: int) -> dict[str, Any]:
            way = [_move(x + side * far, y) for far in ((before + after) / 2, after)]
            return _pointer("touch", _move(x + side * before, y), _DOWN, *way, _UP) | {"id": f"finger {side}"}

        self._act(finger(-1), finger(1))

    def wheel(self, x: float, y: float, dx: float, dy: float) -> None:
        place = {"x": round(x), "y": round(y), "deltaX": round(dx), "deltaY": round(dy)}
        self._act(_source("wheel", {"type": "scroll", "duration": 0, **place}))

    def rect(self, selector: str) -> list[float]:
        """Left, top, width and height of the first element."""
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
        self._socket = socket.create_connection(("127.0.0.1", self._port(folder)), PATIENCE)
        self._file = self._socket.makefile("rb")
        self._read()
        self.version = f"Firefox {self._ask('NewSession')['capabilities']['browserVersion']}"
        self.resize(**SIZE)

    def _port(self, folder: Path) -> int:
        end = time.monotonic() + PATIENCE
        told = folder / "MarionetteActivePort"
        while not (told.exists() and told.read_text().strip()):
            assert self._process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end, f"Firefox did not begin within {PATIENCE} s"
            time.sleep(0.05)
        return int(told.read_text())

    def _read(self) -> Any:
        digits = b"".join(iter(lambda: self._file.read(1), b":"))
        return json.loads(self._file.read(int(digits)))

    def _ask(self, command: str, **given: Any) -> Any:
        text = json.dumps([0, next(self._numbers), f"WebDriver:{command}", given]).encode()
        self._socket.sendall(b"%d:%s" % (len(text), text))
        _, _, error, answer = self._read()
        assert error is None, f"{command}: {error['message']}"
        return answer["value"] if set(answer) == {"value"} else answer

    def close(self) -> None:
        self._file.close()
        self._socket.close()
        super().close()


#: How W3C WebDriver's commands travel over HTTP.
_WAYS = {
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
        asked = [XVFB, "-displayfd", str(write), "-nolisten", "tcp", "-screen", "0", "1400x1000x24"]
        self._screen = subprocess.Popen(asked, pass_fds=[write], **quiet)
        os.close(write)
        with os.fdopen(read) as told:
            display = f":{told.readline().strip()}"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {
            **{f"XDG_{name}_HOME": str(folder) for name in ("CONFIG", "CACHE", "DATA")},
            "DISPLAY": display,
            "GTK_THEME": "Adwaita:dark" if dark else "Adwaita",
            "WEBKIT_DISABLE_COMPOSITING_MODE": "1",  # there is no graphics card to draw with
        }
        self._process = subprocess.Popen(
            [WEBKIT, f"--port={port}"], env=os.environ | environment | {"HOME": str(folder)}, **quiet
        )
        self._address = f"http://127.0.0.1:{port}/session"
        browser = {"binary": str(MINIBROWSER), "args": ["--automation"]}
        session = self._begin({"alwaysMatch": {"webkitgtk:browserOptions": browser}})
        self._address += f"/{session['sessionId']}"
        self.version = f"WebKitGTK {session['capabilities']['browserVersion']}"
        self.resize(**SIZE)

    def _begin(self, capabilities: dict[str, Any]) -> Any:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self._ask("NewSession", capabilities=capabilities)
            except urllib.error.URLError:  # nobody listens yet
                assert time.monotonic() < end, f"WebKitWebDriver did not begin within {PATIENCE} s"
                time.sleep(0.05)

    def _ask(self, command: str, **given: Any) -> Any:
        method, path = _WAYS[command]
        body = json.dumps(given).encode() if method == "POST" else None
        request = urllib.request.Request(self._address + path, body, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{command}: {json.load(error)['value']['message']}") from None

    def wheel(self, x: float, y: float, dx: float, dy: float) -> None:
        super().wheel(x, y, dx, dy)
        self.release()  # the driver sends what a turn has beyond the one before

    def close(self) -> None:
        with urllib.request.urlopen(urllib.request.Request(self._address, method="DELETE"), timeout=PATIENCE):
            pass
        super().close()
        self._screen.terminate()
        self._screen.wait(PATIENCE)
        self._log.close()


KINDS: dict[str, type[Engine]] = {"firefox": Firefox, "webkit": WebKit}
