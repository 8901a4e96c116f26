"""The page in a real browser, in front of the real service; skipped where there is none."""

import contextlib
import json
import re
import shutil
import socket
import threading
import time
import urllib.parse
import urllib.request

import numpy as np
import pytest

from gphash import GPHasher
from gphash.collection.collection import Collection
from gphash.data import sources
from tests.digits import QUICK

selenium = pytest.importorskip("selenium", reason="the page is tested with selenium")
uvicorn = pytest.importorskip("uvicorn", reason="the service needs the extra 'serve'")
Image = pytest.importorskip("PIL.Image", reason="pictures need the extra 'images'")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("the page is tested with chromium and chromedriver", allow_module_level=True)

from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

from gphash.server.service import create_app  # noqa: E402
from gphash.server.settings import ServiceSettings  # noqa: E402

pytestmark = pytest.mark.slow
HOSTILE = '<b class="hostile">3</b><img src=x onerror="document.title=1">'
N_ITEMS = 600
KEY = "shop/5?x=1&y=ä #"
LONG = "Donaudampfschifffahrtsgesellschaft" * 6
LINKS = ["https://example.org/a", "javascript:alert(1)", "data:text/html,x", "//example.org", "HTTP://example.org/b"]
SECONDS = 8
SENT = "Network.requestWillBeSent"


@contextlib.contextmanager
def serving(path, **settings):
    """The address of a service in a thread of its own."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        app = create_app(path, ServiceSettings(watch_seconds=0, log_requests=False, **settings))
        # Without a proper end of its open connections the server would wait for the browser to hang up.
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            until(lambda: server.started and is_ready(address), seconds=90)  # kernels are compiled the first time
            yield address
        finally:
            server.should_exit = True
            thread.join(10)


def is_ready(address):
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}readyz") as response:
        return response.status == 200
    return False


def until(condition, seconds=SECONDS):
    """Wait for a condition and hand back what made it true; what stopped it last is told if it never was."""
    end = time.monotonic() + seconds
    trouble = None
    while time.monotonic() < end:
        try:
            if found := condition():
                return found
        except selenium.common.exceptions.WebDriverException as error:  # the page is changing under our hands
            trouble = error
        time.sleep(0.03)
    raise AssertionError(f"waited {seconds} s in vain") from trouble


@pytest.fixture(scope="module")
def source():
    digits = sources.read("digits")
    rows = np.arange(N_ITEMS)
    classes = tuple(HOSTILE if name == "3" else name for name in digits.classes)
    return digits._replace(X=digits.X[rows], y=digits.y[rows], images=digits.images[rows], classes=classes)


@pytest.fixture(scope="module")
def collections(tmp_path_factory, source):
    """Collections of the same model: digits with pictures, and digits as plain rows."""
    folder = tmp_path_factory.mktemp("page")
    GPHasher(**{**QUICK, "n_bits": 16}).fit(source.X, source.y).save(folder / "digits.gph")
    plain = source._replace(images=None, descriptor=None)
    for name, rows in {"digits": source, "plain": plain}.items():
        Collection.create(folder / f"{name}.gphash", folder / "digits.gph", rows).close()
    things = [
        {
            "key": KEY if row == 5 else f"sku-{row}",
            "label": LONG if source.y[row] == 5 else str(source.y[row]),
            "title": HOSTILE if row == 6 else f"Thing {row}",
            "text": "Useful in the garden. " * (row % 9),
            "link": LINKS[row % len(LINKS)],
            "price": row / 2,
            "a colour": ["red", "blue"][row % 2],
        }
        for row in range(N_ITEMS)
    ]
    Collection.create(folder / "things.gphash", folder / "digits.gph", source.X, things).close()
    large = [{"key": 2**63 - 1 - row} for row in range(50)]
    Collection.create(folder / "large.gphash", folder / "digits.gph", source.X[:50], large).close()
    return folder


@pytest.fixture(scope="module")
def address(collections):
    with serving(collections / "digits.gphash") as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1280,900",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


class Page:
    """What a person sees and does."""

    def __init__(self, browser, address):
        self.browser, self.address = browser, address

    def open(self, state=""):
        self.browser.get("about:blank")
        self.browser.get(f"{self.address}{state}")
        return self

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector):
        return self.one(selector).text

    def run(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def press(self, *keys):
        ActionChains(self.browser).send_keys(*keys).perform()  # to whatever has the focus, at that moment

    def found(self):
        return self.run("return [...document.querySelectorAll('#grid a.main')].map(card => card.dataset.key)")

    def shows(self, origin):
        """Wait for the answer to a query: `item 7`, or the name of a file."""
        until(lambda: self.text("#query-origin") == origin and self.found() and not self.is_busy())
        return self

    def is_busy(self):
        return self.one("#grid").get_attribute("aria-busy") == "true"

    def error(self):
        return until(lambda: self.text("[role=alert] p"))

    def width(self):
        return self.run("return document.documentElement.scrollWidth")


@pytest.fixture
def page(browser, address):
    yield Page(browser, address)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.fixture
def picture(tmp_path, source):
    """The first item as a file."""
    path = tmp_path / "digit.png"
    Image.fromarray(source.images[0]).save(path)
    return path


def test_a_random_item_finds_neighbours(page):
    page.open()
    until(lambda: len(page.all(".starters a")) == 8)
    assert page.text("#fact-items") == str(N_ITEMS)
    assert page.text("#fact-bits") == "16"
    page.one("#random").click()
    until(lambda: len(page.found()) == 20)
    assert "key=" in page.run("return location.hash")
    right = 20 - len(page.all(".card.wrong"))
    assert page.text("#precision") == f"{right} of 20 share the label"
    assert all("other label" in mark.text for mark in page.all(".card.wrong .mark"))
    assert "searched in" in page.text("#time")
    assert len(page.all("#bits .bit")) == 16
    assert page.text("#uncertain").startswith("Least certain: bit ")
    assert page.run("return document.querySelector('#query-picture img').classList.contains('crisp')")


def test_the_probability_of_a_bit_can_be_read(page):
    page.open("#key=0").shows("item 0")
    page.run("document.querySelector('.bit').focus()")
    page.press(Keys.ARROW_RIGHT)
    assert page.text("#readout").startswith("Bit 2 is ")
    assert re.search(r"P\(1\) = [01]\.\d", page.text("#readout"))


def test_strips_mark_as_many_bits_as_the_distance_says(page):
    page.open("#key=0&k=200&ranking=hamming").shows("item 0")
    distances, marks = page.run("""
        const cards = [...document.querySelectorAll('#grid .card')];
        const diamonds = (card) => [...card.querySelectorAll('.differs, .differs-unsure')]
          .reduce((sum, path) => sum + path.getAttribute('d').split('M').length - 1, 0);
        return [cards.map(card => parseInt(card.querySelector('.distance').textContent)), cards.map(diamonds)];
    """)
    assert len(distances) == 200
    assert max(distances) > 0
    assert distances == marks


def test_a_picked_picture_is_searched_for(page, picture):
    page.open("#key=5").shows("item 5")
    page.one("#file").send_keys(str(picture))
    page.shows("digit.png")
    assert "0" in page.found()  # which is this very picture
    assert page.text("#precision").startswith("Of 20: ")
    page.one("#grid a.main").click()
    until(lambda: page.text("#query-origin").startswith("item"))
    page.browser.back()
    page.shows("digit.png")
    page.browser.back()
    page.shows("item 5")


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_a_picture_may_come_by_hand(page, way):
    page.open("#key=5").shows("item 5")
    page.run(
        """
        const way = arguments[0];
        fetch('pictures/7').then((response) => response.blob()).then((blob) => {
          const carried = new DataTransfer();
          carried.items.add(new File([blob], 'seven.png', {type: blob.type}));
          dispatchEvent(way === 'drop' ? new DragEvent(way, {dataTransfer: carried, cancelable: true})
                                       : new ClipboardEvent(way, {clipboardData: carried}));
        });
        """,
        way,
    )
    page.shows("seven.png")
    assert page.run("return document.querySelector('#drop').hidden")


def test_the_ranking_changes_order_and_distances(page):
    page.open("#key=11&k=400&ranking=hamming").shows("item 11")
    by_hamming = page.found()
    assert re.fullmatch(r"\d+ bits, [<>]?\d+ %", page.text(".distance"))
    page.one("label[for=by-expected]").click()
    until(lambda: "." in page.text(".distance"))
    assert "ranking=expected" in page.run("return location.hash")
    expected = [float(cell.text.split(",")[0]) for cell in page.all(".distance")]
    assert expected == sorted(expected)
    assert page.found() != by_hamming
    page.one("label[for=by-similarity]").click()
    until(lambda: re.fullmatch(r"[<>]?\d+ %", page.text(".distance")))
    assert "ranking" not in page.run("return location.hash")  # as it is without a word
    chances = [int(cell.text.strip("<>% ")) for cell in page.all(".distance")]
    assert chances == sorted(chances, reverse=True)
    assert "similar with a probability of" in page.text("#grid")


def test_the_most_probably_similar_come_first_and_classes_are_told(page):
    page.open("#key=11").shows("item 11")
    assert page.one("#by-similarity").is_selected()
    assert re.match(
        r"(Probably|If anything) \d \([<>]?\d+ %\).*; as familiar as [<>]?\d+ % of what", page.text("#beliefs")
    )
    assert not page.run("return document.querySelector('#promise').hidden") or not page.text("#promise")
    assert "similar with a probability of" in page.text("#grid")


def test_settings_narrow_the_search(page):
    page.open("#key=11").shows("item 11")
    page.one("#k").send_keys(Keys.CONTROL, "a")
    page.one("#k").send_keys("7")
    until(lambda: len(page.found()) == 7)
    assert page.one("#k-range").get_attribute("value") == "7"
    page.run("""
        const label = document.querySelector('#label');
        label.value = '4';
        label.dispatchEvent(new Event('change'));
    """)
    until(lambda: {name.text for name in page.all(".card .name")} == {"4"})
    page.one("#radius").send_keys("0")
    query = page.run("return document.querySelector('#query-label').textContent")
    if query != "4":
        until(lambda: "No other item of “4” within 0 bits." in page.text("#empty"))
        page.one("#empty button").click()
        until(lambda: len(page.found()) == 7)


def test_what_is_no_picture_is_refused_in_words(page, tmp_path):
    path = tmp_path / "notes.png"
    path.write_text("These are words.")
    page.open("#key=5").shows("item 5")
    before = page.found()
    page.one("#file").send_keys(str(path))
    assert "picture" in page.error()
    assert page.text("#query-origin") == "item 5"
    assert page.found() == before
    page.one("#alert-close").click()
    assert not page.one("[role=alert]").is_displayed()


def test_a_refused_picture_leaves_the_beginning_as_it_was(page, tmp_path):
    path = tmp_path / "notes.png"
    path.write_text("These are words.")
    page.open()
    until(lambda: page.all(".starters a"))
    page.one("#file").send_keys(str(path))
    page.error()
    until(lambda: page.one(".starters").is_displayed())
    assert page.all(".skeleton") == []


def test_an_unknown_item_is_told(page):
    page.open("#key=99999")
    assert "99999" in page.error()
    assert page.found() == []
    page.one("#random").click()
    until(page.found)
    assert not page.one("[role=alert]").is_displayed()


def test_a_neighbour_is_searched_by_and_back_leads_back(page):
    page.open("#key=5").shows("item 5")
    before = page.found()
    page.all("#grid a.main")[2].click()
    page.shows(f"item {before[2]}")
    assert page.run("return location.hash") == f"#key={before[2]}"
    page.browser.back()
    page.shows("item 5")
    assert page.found() == before
    page.browser.forward()
    page.shows(f"item {before[2]}")


def test_the_keyboard_is_enough(page):
    page.open("#key=5&ranking=hamming").shows("item 5")
    keys = page.found()
    focused = "return document.activeElement.dataset.key"
    page.press(Keys.ARROW_DOWN)
    assert page.run(focused) == keys[0]
    page.press(Keys.ARROW_RIGHT)
    assert page.run(focused) == keys[1]
    page.press(Keys.ARROW_DOWN)
    page.press(Keys.ARROW_UP)
    assert page.run(focused) == keys[1]
    page.press(Keys.ENTER)
    page.shows(f"item {keys[1]}")
    assert page.run(focused) == page.found()[0]  # the focus stays in the grid
    page.press("e")
    until(lambda: "." in page.text(".distance"))
    page.press("b")
    until(lambda: page.all(".samples"))
    page.press("b")
    until(lambda: page.one("#grid").is_displayed())
    page.press("?")
    until(lambda: page.one("#help").is_displayed())
    page.press(Keys.ESCAPE)
    until(lambda: not page.one("#help").is_displayed())
    page.press("r")
    until(lambda: page.text("#query-origin") != f"item {keys[1]}")


def test_keys_typed_into_a_field_are_no_commands(page):
    page.open("#key=5").shows("item 5")
    page.one("#radius").send_keys("rb?")
    assert page.one("#view-search").is_displayed()
    assert not page.one("#help").is_displayed()
    assert page.text("#query-origin") == "item 5"


def test_buckets_are_shown_with_their_shares(page):
    page.open("#view=buckets")
    until(lambda: page.all(".samples"))
    sizes = [int(size.text.split()[0]) for size in page.all(".bucket .size span")]
    assert sizes == sorted(sizes, reverse=True)
    assert page.text("#buckets-summary").startswith(f"{N_ITEMS} items in ")
    assert "%" in page.text(".bucket .text")
    assert set(page.text(".bucket .code")) <= set("01 ")
    until(lambda: page.run("return document.querySelector('.samples img').naturalWidth") == 8)
    page.one(".samples a").click()
    until(page.found)
    page.browser.back()
    until(lambda: page.one("#view-buckets").is_displayed())


def test_the_last_of_several_queries_is_shown(page):
    page.open("#key=5").shows("item 5")
    page.run("for (const key of [1, 2, 3, 4]) location.hash = `#key=${key}`")
    page.shows("item 4")
    page.press("e", "e", "e")  # through all rankings and back while the first is under way
    until(lambda: not page.is_busy() and re.fullmatch(r"[<>]?\d+ %", page.text(".distance")))


def test_nothing_is_asked_of_other_hosts(page):
    page.browser.get_log("performance")
    page.browser.get_log("browser")
    page.open("#key=5").shows("item 5")
    page.press("b")
    until(lambda: page.all(".samples"))
    addresses = page.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert len(addresses) > 5
    assert [address for address in addresses if not address.startswith(page.address)] == []
    messages = [json.loads(entry["message"])["message"] for entry in page.browser.get_log("performance")]
    sent = [message["params"]["request"]["url"] for message in messages if message["method"] == SENT]
    assert len(sent) > 5
    assert [address for address in sent if not address.startswith(page.address)] == []
    assert page.browser.get_log("browser") == []  # neither errors nor breaches of the policy


def test_the_page_is_dark_where_the_system_is(page):
    background = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    for scheme, dark in (("light", False), ("dark", True)):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        page.open("#key=5").shows("item 5")
        assert (max(page.run(background)) < 64) == dark


def test_nothing_jumps_while_the_answer_comes(page):
    page.open("#key=5").shows("item 5")
    shifts = page.browser.execute_async_script("""
        const done = arguments[0];
        let sum = 0;
        new PerformanceObserver((list) => { for (const entry of list.getEntries()) sum += entry.value; })
          .observe({type: 'layout-shift', buffered: true});
        setTimeout(() => done(sum), 200);
    """)
    assert shifts < 0.02


@pytest.mark.parametrize("state", ["#key=5", "#view=buckets", ""])
def test_a_phone_is_wide_enough(page, state):
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.open(state)
    until(lambda: page.all(".card a.main, .samples, .starters a"))
    assert page.width() <= 360


def test_labels_are_text(page, source):
    three = int(np.flatnonzero(source.y == source.classes.index(HOSTILE))[0])
    page.open(f"#key={three}").shows(f"item {three}")
    assert page.text("#query-label") == HOSTILE
    assert page.width() <= page.run("return innerWidth")  # long as it is
    assert HOSTILE in {name.get_attribute("textContent") for name in page.all(".card .name")}
    page.press("b")
    until(lambda: page.all(".samples"))
    assert any(HOSTILE in text.text for text in page.all(".bucket .text"))
    assert page.all(".hostile") == []
    assert page.run("return document.title") != "1"


def test_a_token_is_asked_for_and_kept(browser, collections):
    with serving(collections / "digits.gphash", read_token="open-sesame") as address:
        page = Page(browser, address).open("#key=5")
        until(lambda: page.one("#token-dialog").is_displayed())
        page.one("#token").send_keys("wrong", Keys.ENTER)
        until(lambda: "refused" in page.text("#token-text"))
        page.one("#token").send_keys("open-sesame", Keys.ENTER)
        page.shows("item 5")
        until(lambda: page.run("return document.querySelector('#grid img').naturalWidth") == 8)
        assert page.one("#grid img").get_attribute("src").startswith("blob:")
        browser.refresh()
        page.shows("item 5")
        assert not page.one("#token-dialog").is_displayed()


@pytest.fixture(scope="module")
def shop(collections):
    with serving(collections / "things.gphash") as address:
        yield address


@pytest.fixture
def things(page, shop):
    page.address = shop
    return page


def hashed(key):
    return "#" + urllib.parse.urlencode({"key": key})


def test_without_pictures_there_is_a_list(things):
    things.open(hashed("sku-7")).shows("item sku-7")
    assert not things.one("#pick").is_displayed()
    assert not things.one("#query-picture").is_displayed()
    assert things.all("#grid img, #grid .frame") == []
    assert things.text("#query-label") == "Thing 7"
    assert "Useful in the garden." in things.text("#query-about")
    assert "price\n3.5" in things.text("#query-about")
    assert all(name.text.startswith("Thing") for name in things.all(".card .name"))
    assert len(things.all(".rows .card .columns")) == 20
    assert things.text("#uncertain") == "This query has no probabilities."


def test_only_addresses_of_the_web_are_links(things):
    things.open(hashed("sku-7") + "&k=200").shows("item sku-7")
    found = things.run("""
        return [...document.querySelectorAll('#main a.link')].map(a => [a.getAttribute('href'), a.rel, a.target]);
    """)
    assert {link for link, _, _ in found} == {"https://example.org/a", "http://example.org/b"}
    assert {(rel, target) for _, rel, target in found} == {("noopener noreferrer", "_blank")}
    assert {"javascript:alert(1)", "//example.org"} <= {text.text for text in things.all("span.link")}
    assert things.run('return document.querySelectorAll(\'a[href^="javascript"], a[href^="data"]\').length') == 0


def test_an_item_is_found_by_any_key(things):
    things.open()
    until(lambda: things.all(".starters a"))
    things.one("#key").send_keys(KEY, Keys.ENTER)
    things.shows(f"item {KEY}")
    assert things.text("#query-label") == "Thing 5"
    things.one("#grid a.main").click()
    until(lambda: things.text("#query-origin") != f"item {KEY}")
    things.browser.back()
    things.shows(f"item {KEY}")
    things.one("#key").send_keys(Keys.CONTROL, "a")
    things.one("#key").send_keys("nobody", Keys.ENTER)
    assert "nobody" in things.error()


def test_whole_numbers_beyond_those_of_javascript(browser, collections):
    with serving(collections / "large.gphash") as address:
        largest = 2**63 - 1
        page = Page(browser, address).open(f"#key={largest}").shows(f"item {largest}")
        neighbour = page.found()[0]
        assert largest - 50 < int(neighbour) < largest
        page.one("#grid a.main").click()
        page.shows(f"item {neighbour}")
        page.one("#key").clear()
        page.one("#key").send_keys("seven", Keys.ENTER)
        assert "whole numbers" in page.error()


def test_a_vector_is_searched_for(things, source):
    things.open()
    until(lambda: things.all(".starters a"))
    things.one(".more-ways summary").click()
    field, button = things.one("#vector"), things.one("#by-vector button")
    assert things.text("#vector-hint").startswith("64 numbers")
    field.send_keys("1, 2 3")
    button.click()
    until(lambda: things.text("#vector-fault") == "There are 3 numbers; give 64.")
    things.run("arguments[0].value = arguments[1]", field, ", ".join(["x"] * 64))
    button.click()
    until(lambda: "no number" in things.text("#vector-fault"))
    row = " ".join(map(str, source.X[7].tolist()[:32])) + ",\n" + ",".join(map(str, source.X[7].tolist()[32:]))
    things.run("arguments[0].value = arguments[1]", field, row)
    button.click()
    things.shows("vector of 64 numbers")
    assert things.text("#vector-fault") == ""
    bits = "".join(bit.text for bit in things.all("#bits .bit"))
    things.open(hashed("sku-7")).shows("item sku-7")
    assert "".join(bit.text for bit in things.all("#bits .bit")) == bits


def test_a_text_is_searched_for(browser, tmp_path, monkeypatch):
    small = pytest.importorskip("tests.onnx_models", reason="needs the extra onnx")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    texts = [f"the {one} sees a {one}" for one in ("cat", "dog", "bird", "bank", "loan", "coin")]
    X = np.stack([small.text_row(text) for text in texts])
    hasher = GPHasher(**{**QUICK, "n_bits": 8, "n_inducing": 6}).fit(X, np.repeat([0, 1], 3))
    encoder = small.text_model(tmp_path / "encoder")
    Collection.create(tmp_path / "t.gphash", hasher, texts, encoder=encoder).close()
    with serving(tmp_path / "t.gphash") as address:
        page = Page(browser, address).open()
        until(lambda: "Give a text" in page.text("#empty"))
        page.press("/")
        page.press("a dog & a cat")
        page.one("#by-text button").click()
        page.shows("a dog & a cat")
        assert page.text("#query-label") == "text given"
        # The address holds the text, and an item takes its place.
        page.open(page.run("return location.hash")).shows("a dog & a cat")
        assert page.one("#text").get_attribute("value") == "a dog & a cat"
        page.one("#grid a.main").click()
        until(lambda: page.text("#query-origin").startswith("item "))
        assert "text=" not in page.run("return location.hash")


def test_without_an_encoder_of_texts_there_is_no_field(things):
    things.open()
    until(lambda: things.all(".starters a"))
    assert not things.one("#by-text").is_displayed()


def test_a_condition_narrows_the_search(things):
    things.open(hashed("sku-7") + "&k=600").shows("item sku-7")
    columns = [column.text for column in things.all("#column-list li")]
    assert columns == ["key", "label", "tags", "title", "text", "link", "picture", "price", "a colour"]
    things.all("#column-list button")[-1].click()
    assert things.one("#where").get_attribute("value") == '"a colour"'
    things.one("#where").send_keys(" = 'red' and price < 20", Keys.ENTER)
    until(lambda: len(things.found()) == 20)
    assert "where=" in things.run("return location.hash")
    things.one("#where").send_keys(" and weight > 1", Keys.ENTER)
    assert "the columns are key, label" in things.error()
    assert things.found() == []
    assert things.one("#where").get_attribute("aria-invalid") is not None
    things.one("#where").send_keys(Keys.CONTROL, "a")
    things.one("#where").send_keys("price < 0", Keys.ENTER)
    until(lambda: "No other item with price < 0." in things.text("#empty"))
    assert not things.one("[role=alert]").is_displayed()
    things.one("#empty button").click()
    until(lambda: len(things.found()) == 599)


def test_as_many_are_shown_as_the_service_allows(collections, browser):
    with serving(collections / "things.gphash", max_k=333) as address:
        page = Page(browser, address).open(hashed("sku-7")).shows("item sku-7")
        assert page.one("#k-range").get_attribute("max") == "333"
        page.run("""
            const range = document.querySelector('#k-range');
            range.value = 999;
            range.dispatchEvent(new Event('input'));
        """)
        until(lambda: len(page.found()) == 333)


def test_ties_are_no_order(things, collections):
    with Collection.open(collections / "things.gphash") as collection:
        every = [hit.distance for hit in collection.search(collection.query(key="sku-7"), N_ITEMS, ranking="hamming")]
    for k in (5, 100, 599):
        things.open(hashed("sku-7") + f"&k={k}&ranking=hamming").shows("item sku-7")
        shown = things.run("""
            return [...document.querySelectorAll('#grid section')].map(section => [
              section.querySelector('h3').textContent,
              [...section.querySelectorAll('.distance')].map(cell => parseInt(cell.textContent)),
            ]);
        """)
        assert sum(len(distances) for _, distances in shown) == k
        for title, distances in shown:
            n, share = len(distances), every.count(distances[0])
            if "nearest first" in title or share == 1:
                assert len(set(distances)) == n
                continue
            unit = "bit" if distances[0] == 1 else "bits"
            beginning = f"{n} of {share} items that" if n < share else f"{n} items"
            assert set(distances) == {distances[0]}
            assert title == f"{beginning} are {distances[0]} {unit} away, none nearer than another"
    assert not any(card.get_attribute("aria-label")[0].isdigit() for card in things.all("#grid a.main")[:20])


@pytest.mark.parametrize("width", [360, 1280])
def test_long_labels_wrap(things, source, width):
    size = {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": width < 600}
    things.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    row = next(row for row in range(6, N_ITEMS) if source.y[row] == 5)
    for state in (hashed(f"sku-{row}"), "#view=buckets", ""):
        things.open(state)
        until(lambda: things.all(".card a.main, .names a, .starters a"))
        assert things.width() <= width
    things.open(hashed(f"sku-{row}")).shows(f"item sku-{row}")
    assert things.text("#query-more") == LONG
    cut = "return [...document.querySelectorAll('.more span')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert things.run(cut) == 0


def test_titles_are_text(things):
    things.open(hashed("sku-6")).shows("item sku-6")
    assert things.text("#query-label") == HOSTILE
    assert things.all(".hostile") == []
    assert things.run("return document.title") != "1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_requests_are_described_on_a_page_of_their_own(things, scheme):
    feature = {"name": "prefers-color-scheme", "value": scheme}
    things.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    things.browser.get_log("browser")
    things.open("docs")
    until(lambda: things.all("article"))
    with urllib.request.urlopen(f"{things.address}openapi.json") as response:
        paths = json.load(response)["paths"]
    assert {line.text for line in things.all("article h2 code")} == set(paths)
    search = things.one("#post--search")
    assert "where" in search.text
    assert "exactly" not in search.text
    asked = things.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [address for address in asked if not address.startswith(things.address)] == []
    assert things.browser.get_log("browser") == []
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    things.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert things.width() <= 360


def test_a_service_that_is_gone_is_told(browser, collections):
    with serving(collections / "digits.gphash") as address:
        page = Page(browser, address).open("#key=5").shows("item 5")
    page.press("r")
    assert "does not answer" in page.error()
    assert page.one("#alert-retry").is_displayed()
