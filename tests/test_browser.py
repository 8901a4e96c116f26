"""The example page encodes in a browser as the model does, and asks no other host for anything."""

import functools
import json
import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from gphash import GPHasher
from gphash.functions import exporting
from gphash.hashers import methods
from tests import digits

selenium = pytest.importorskip("selenium", reason="the page is tested with selenium")
pytest.importorskip("onnx", reason="graphs need the extra 'onnx'")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("the page is tested with chromium and chromedriver", allow_module_level=True)

from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parent.parent / "examples" / "browser"
ROWS = digits.X[1200:1500].astype(np.float32)
SECONDS = 30
QUICK = {**digits.QUICK, "n_bits": 12}
HASHERS = {
    "labels": lambda: GPHasher(**QUICK).fit(digits.X[:400], digits.y[:400]),
    "tags": lambda: GPHasher(**QUICK).fit(digits.X[:400], digits.tags[:400]),
    "rough": lambda: GPHasher(**QUICK, kernel="exponential").fit(digits.X[:400], digits.y[:400]),
    "lines": lambda: methods.METHODS["itq"](12, random_state=0).fit(digits.X[:400]),
    "waves": lambda: methods.METHODS["spectral"](12, random_state=0).fit(digits.X[:400]),
    "trees": lambda: methods.METHODS["fasthash"](12, n_trees=5, random_state=0).fit(digits.X[:400], digits.y[:400]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The example with onnxruntime-web beside it."""
    if not (shutil.which("npm") and shutil.which("make")):
        pytest.skip("onnxruntime-web is fetched with make and npm")
    place = tmp_path_factory.mktemp("page") / "browser"
    ignored = shutil.ignore_patterns("vendor*", "*.onnx")
    shutil.copytree(EXAMPLE, place, ignore=ignored)
    fetched = subprocess.run(["make", "-C", str(place), "vendor"], capture_output=True, text=True, timeout=110)
    if fetched.returncode:
        pytest.skip(f"onnxruntime-web cannot be fetched: {fetched.stderr.strip().splitlines()[-1]}")
    return place


@pytest.fixture(scope="module")
def address(folder):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_script_timeout(SECONDS)
    yield driver
    driver.quit()


def opened(browser, address):
    browser.get("about:blank")
    browser.get_log("performance"), browser.get_log("browser")
    browser.get(address)
    said = browser.find_element(By.ID, "status")
    WebDriverWait(browser, SECONDS).until(lambda _: not said.text.startswith("loading"))
    assert said.text == "ready: rows of 64 numbers", browser.get_log("browser")


def test_the_page_gives_our_codes(folder, address, browser):
    hasher = HASHERS["labels"]()
    (folder / "codes.onnx").unlink(missing_ok=True)
    hasher.to_onnx(folder / "codes.onnx")
    opened(browser, address)
    text = "\n".join(",".join(f"{value:g}" for value in row) for row in ROWS[:20])
    browser.execute_script("document.getElementById('rows').value = arguments[0]", text)
    browser.find_element(By.ID, "encode").click()
    said = browser.find_element(By.ID, "status")
    WebDriverWait(browser, SECONDS).until(lambda _: said.text == "20 rows encoded")
    shown = browser.find_element(By.ID, "codes").text.split()
    assert shown == [code.tobytes().hex() for code in hasher.encode(ROWS[:20])]

    browser.execute_script("document.getElementById('rows').value = '1, 2, x'")
    browser.find_element(By.ID, "encode").click()
    WebDriverWait(browser, SECONDS).until(lambda _: said.text == "row 1 is not 64 numbers")

    before = browser.find_element(By.ID, "classes").text
    pad = browser.find_element(By.ID, "canvas")
    ActionChains(browser).move_to_element(pad).click_and_hold().move_by_offset(0, 80).release().perform()
    WebDriverWait(browser, SECONDS).until(lambda _: browser.find_element(By.ID, "classes").text != before)

    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    assert {urlsplit(url).netloc for url in asked if not url.startswith(("data:", "about:", "blob:"))} == {
        urlsplit(address).netloc
    }
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.parametrize("name", HASHERS)
def test_every_form_runs_in_a_browser(folder, address, browser, name):
    hasher = HASHERS[name]()
    (folder / "codes.onnx").unlink(missing_ok=True)
    told = hasher.to_onnx(folder / "codes.onnx")
    opened(browser, address)
    script = "const done = arguments[1]; window.encode(arguments[0]).then((found) => done(Object.fromEntries("
    script += "Object.entries(found).map(([name, rows]) => [name, rows.map((row) => Array.from(row))]))), done)"
    found = browser.execute_async_script(script, ROWS.tolist())
    assert sorted(found) == sorted(told.outputs)
    function = hasher.hash_function_
    doubtful = exporting.form_of(function).doubtful(function, ROWS)
    bits = np.unpackbits(np.array(found["codes"], np.uint8), axis=1, count=12)
    np.testing.assert_array_equal(bits[~doubtful], hasher.transform(ROWS)[~doubtful])
    if "bit_probabilities" in found:
        np.testing.assert_allclose(found["bit_probabilities"], hasher.bit_probabilities(ROWS), atol=1e-4)
        np.testing.assert_allclose(found["class_probabilities"], hasher.predict_proba(ROWS), atol=1e-4)
