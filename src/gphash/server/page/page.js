// The page of the service: search by a picture or by an item, and look into the buckets.
// The address after # is the state; everything on show follows from it and from the service's answers. Text of the
// collection (labels, names) goes in by textContent only, and styles by CSSOM, as the content security policy asks.

const DEFAULTS = { view: "search", id: null, upload: null, k: 20, ranking: "hamming", radius: null, label: null };
const SURE = 0.5; // |2P − 1| below which a bit of the query counts as unsure: P between 0.25 and 0.75
const CRISP = 64; // pictures narrower than this are scaled without smoothing
const SHOWN_SHARES = 4; // labels of a bucket that are named; the rest is counted
const KEPT_UPLOADS = 12;
const KEPT_PICTURES = 600;
const TOKEN = "gphash-token";

const find = (id) => document.getElementById(id);
const grid = find("grid");
const numbers = new Intl.NumberFormat("en-GB");
const count = (n, one, many = `${one}s`) => `${numbers.format(n)} ${n === 1 ? one : many}`;
const percent = (share) => (share > 0 && share < 0.01 ? "<1 %" : `${Math.round(100 * share)} %`);
const milliseconds = (time) => (time < 10 ? time.toFixed(1) : numbers.format(Math.round(time)));

let collection = null; // what GET /collection said
let state = { ...DEFAULTS };
let shown = null; // the search whose answer is on show, as its address
let answer = null; // that answer
let searching = null; // AbortController of the search under way
let bucketing = null;
let bucketsShown = false;
const uploads = new Map(); // number -> { file, name, url }
let lastUpload = 0;

// ---- Elements

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") element.textContent = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function draw(width, height, paths, properties = {}) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("aria-hidden", "true");
  for (const [name, value] of Object.entries(properties)) svg.setAttribute(name, value);
  for (const [kind, d] of Object.entries(paths)) {
    if (!d) continue;
    const path = document.createElementNS(space, "path");
    path.setAttribute("class", kind);
    path.setAttribute("d", d);
    svg.append(path);
  }
  return svg;
}

// ---- Address

function parse(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const whole = (name, least, most) => {
    const text = given.get(name) ?? "";
    return /^-?\d{1,16}$/.test(text) && Number(text) >= least ? Math.min(Number(text), most) : DEFAULTS[name];
  };
  const upload = whole("upload", 1, Infinity);
  return {
    view: given.get("view") === "buckets" ? "buckets" : "search",
    id: upload === null ? whole("id", -Infinity, Infinity) : null,
    upload,
    k: whole("k", 1, collection?.limits.k ?? 1000),
    ranking: given.get("ranking") === "expected" ? "expected" : "hamming",
    radius: whole("radius", 0, Infinity),
    label: given.get("label") || null,
  };
}

function address(changes) {
  const next = { ...state, ...changes };
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(next)) if (value !== DEFAULTS[name]) given.set(name, value);
  return `#${given}`;
}

const searchOf = (some) => address({ ...some, view: "search" });
const byItem = (id) => address({ id, upload: null, view: "search" });

function go(changes, { replace = false } = {}) {
  const target = address({ ...pending, ...changes });
  if (replace) history.replaceState(null, "", target);
  else if (target !== address({})) history.pushState(null, "", target);
  return follow();
}

// ---- Requests

class Failure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
  get mayPass() {
    return [0, 408, 429].includes(this.status) || this.status >= 500;
  }
}

async function request(path, options = {}) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const headers = { Accept: "application/json", ...options.headers };
    if (token) headers.Authorization = `Bearer ${token}`;
    let response;
    try {
      response = await fetch(path, { ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Failure("The service does not answer. Is it still running, and is the network there?");
    }
    if (response.ok) return response;
    const failure = await reasonOf(response);
    if (response.status !== 401) throw failure;
    const changed = sessionStorage.getItem(TOKEN) !== token;
    if (!changed && !(await askToken(token !== null))) throw failure;
  }
}

async function reasonOf(response) {
  let message = `${response.status} ${response.statusText}`.trim();
  try {
    message = (await response.json()).error.message || message;
  } catch {
    // Not this service's own words, such as a proxy's page: the status has to do.
  }
  return new Failure(message, response.status);
}

const fetchJson = async (path, options) => (await request(path, options)).json();

let asking = null; // one dialog for all requests that wait for a token

function askToken(refused) {
  asking ??= new Promise((resolve) => {
    const dialog = find("token-dialog");
    const input = find("token");
    input.value = "";
    find("token-text").textContent = refused
      ? "That token was refused. Give another one."
      : "This service answers only with a token. It is kept until this tab is closed.";
    find("token-form").onsubmit = (event) => {
      event.preventDefault();
      if (!input.value.trim()) return;
      sessionStorage.setItem(TOKEN, input.value.trim());
      dialog.close("given");
    };
    dialog.onclose = () => {
      asking = null;
      resolve(dialog.returnValue === "given");
    };
    dialog.returnValue = "";
    dialog.showModal();
    input.focus();
  });
  return asking;
}

function showError(error, retry = null) {
  if (error.name === "AbortError") return;
  if (!(error instanceof Failure)) console.error(error);
  const button = find("alert-retry");
  find("alert-text").textContent = error.message;
  button.hidden = !(retry && (error.mayPass || error.status === 401));
  button.onclick = () => {
    hideError();
    retry();
  };
  find("alert").hidden = false;
}

function hideError() {
  find("alert").hidden = true;
  find("alert-text").textContent = "";
}

let underWay = 0;

async function busy(work) {
  find("progress").classList.toggle("on", ++underWay > 0);
  try {
    return await work();
  } finally {
    find("progress").classList.toggle("on", --underWay > 0);
  }
}

// ---- Pictures

const blobs = new Map(); // id -> promise of an object URL; only with a token, as <img> sends none

function blobOf(id) {
  if (!blobs.has(id)) {
    const fetched = request(`items/${id}/image`).then(async (response) => URL.createObjectURL(await response.blob()));
    blobs.set(id, fetched);
    fetched.catch(() => blobs.delete(id));
    if (blobs.size > KEPT_PICTURES) {
      const [oldest, url] = blobs.entries().next().value;
      blobs.delete(oldest);
      url.then(URL.revokeObjectURL, () => {});
    }
  }
  return blobs.get(id);
}

const nearby = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      nearby.unobserve(target);
      blobOf(Number(target.dataset.id)).then(
        (url) => (target.src = url),
        () => target.dispatchEvent(new Event("error")),
      );
    }
  },
  { rootMargin: "300px" },
);

/** A square with the picture, or with the bits as a pattern if there is none or it does not load. */
function frame(source, bits, alt) {
  const square = make("div", { class: "frame" });
  const instead = () => square.querySelector("img, svg")?.replaceWith(pattern(bits));
  if (source === null) {
    square.append(pattern(bits));
    return square;
  }
  const image = make("img", { alt, draggable: "false", decoding: "async" });
  image.addEventListener("load", () => image.classList.toggle("crisp", image.naturalWidth < CRISP));
  image.addEventListener("error", instead);
  square.append(image);
  if (typeof source === "string") {
    image.src = source;
  } else if (sessionStorage.getItem(TOKEN)) {
    image.dataset.id = source;
    nearby.observe(image);
  } else {
    image.loading = "lazy";
    image.src = `items/${source}/image`;
  }
  return square;
}

function pattern(bits) {
  if (!bits) return make("span", { class: "hint", text: "no picture" });
  const side = Math.ceil(Math.sqrt(bits.length));
  const paths = { "zero-bits": "", "one-bits": "" };
  [...bits].forEach((bit, i) => {
    const corner = `M${(i % side) + 0.06} ${Math.floor(i / side) + 0.06}`;
    paths[bit === "1" ? "one-bits" : "zero-bits"] += `${corner}h.88v.88h-.88z`;
  });
  return draw(side, side, paths);
}

// ---- Codes

const certainty = (p) => Math.abs(2 * p - 1);

/** The neighbour's bits: dots where they equal the query's, diamonds where not, hollow where the query is unsure. */
function strip(bits, query) {
  const width = bits.length > 64 ? 32 : Math.min(16, bits.length);
  const height = Math.ceil(bits.length / width);
  const paths = { "same-zero": "", "same-one": "", differs: "", "differs-unsure": "" };
  [...bits].forEach((bit, i) => {
    const x = i % width;
    const y = Math.floor(i / width);
    if (bit === query.bits[i]) {
      paths[bit === "1" ? "same-one" : "same-zero"] += `M${x + 0.3} ${y + 0.3}h.4v.4h-.4z`;
    } else {
      const unsure = query.probabilities && certainty(query.probabilities[i]) < SURE;
      paths[unsure ? "differs-unsure" : "differs"] += `M${x + 0.5} ${y + 0.06}l.44 .44l-.44 .44l-.44 -.44z`;
    }
  });
  return draw(width, height, paths, { class: "strip" });
}

function differing(bits, query) {
  const places = [...bits].flatMap((bit, i) => (bit === query.bits[i] ? [] : [i + 1]));
  if (!places.length) return "no bit differs";
  return `${count(places.length, "bit")} ${places.length === 1 ? "differs" : "differ"}: ${places.join(", ")}`;
}

function describeBit(query, i) {
  const value = `Bit ${i + 1} is ${query.bits[i]}`;
  return query.probabilities ? `${value}, P(1) = ${query.probabilities[i].toFixed(3)}` : value;
}

function showCode(query) {
  const holder = find("bits");
  find("code").hidden = !query;
  holder.replaceChildren();
  if (!query) return;
  const { bits, probabilities } = query;
  holder.classList.toggle("many", bits.length > 128);
  [...bits].forEach((bit, i) => {
    const sure = probabilities ? certainty(probabilities[i]) : 1;
    const strong = sure > (bit === "1" ? 0.75 : 0.65); // from there on the other ink is easier to read
    const cell = make("span", {
      class: `bit ${bit === "1" ? "one" : "zero"}${strong ? " sure" : ""}`,
      role: "img",
      tabindex: i === 0 ? "0" : "-1",
      "aria-label": describeBit(query, i),
      text: bit,
    });
    cell.style.setProperty("--certainty", sure.toFixed(3));
    holder.append(cell);
  });
  find("scale").hidden = !probabilities;
  find("uncertain").textContent = probabilities ? leastCertain(probabilities) : "This query has no probabilities.";
  readBit(null);
}

/** The room that the code will take. */
function outlineCode() {
  const blank = () => make("span", { class: "bit blank", "aria-hidden": "true" });
  find("bits").classList.toggle("many", collection.n_bits > 128);
  find("bits").replaceChildren(...Array.from({ length: collection.n_bits }, blank));
  find("scale").hidden = !collection.probabilities;
  find("readout").textContent = find("uncertain").textContent = "";
  find("code").hidden = false;
}

function leastCertain(probabilities) {
  const order = probabilities.map((p, i) => [certainty(p), i]).sort((a, b) => a[0] - b[0]);
  const named = order.slice(0, 3).map(([, i]) => `bit ${i + 1} (P\u00a0=\u00a0${probabilities[i].toFixed(2)})`);
  const last = named.pop();
  return `Least certain: ${named.length ? `${named.join(", ")} and ${last}` : last}.`;
}

function readBit(cell) {
  if (!answer) return;
  const { query } = answer;
  const readout = find("readout");
  if (cell) {
    readout.textContent = cell.getAttribute("aria-label");
  } else if (query.probabilities) {
    const sure = query.probabilities.filter((p) => certainty(p) > 0.8).length;
    readout.textContent = `More than 90 % sure of ${sure} of ${count(query.bits.length, "bit")}`;
  } else {
    readout.textContent = count(query.bits.length, "bit");
  }
}

// ---- Search

async function search() {
  const wanted = searchOf({});
  searching?.abort();
  searching = null;
  if (wanted === shown && !grid.querySelector(".skeleton")) {
    waiting(false);
    return;
  }
  if (state.id === null && state.upload === null) {
    shown = wanted;
    clearSearch();
    await welcome();
    return;
  }
  const upload = uploads.get(state.upload);
  if (state.upload !== null && !upload) {
    shown = wanted;
    clearSearch();
    say("The picture of this address was given in another tab or before a reload. Give it again.");
    return;
  }
  const control = (searching = new AbortController());
  waiting(true);
  try {
    const found = await busy(() => ask(upload?.file ?? null, control.signal));
    if (control.signal.aborted) return;
    hideError();
    const before = shown;
    shown = wanted;
    show(found, upload ?? null);
    if (before !== null && queryOf(before) !== queryOf(wanted)) window.scrollTo(0, 0);
  } catch (error) {
    if (control.signal.aborted) return;
    shown = null;
    clearSearch();
    say("Nothing to show: the search failed.");
    showError(error, follow);
  } finally {
    if (searching === control) {
      searching = null;
      waiting(false);
    }
  }
}

function queryOf(hash) {
  const given = new URLSearchParams(hash.slice(1));
  return `${given.get("id")} ${given.get("upload")}`;
}

function ask(file, signal) {
  const { k, ranking, radius, label } = state;
  if (!file) {
    const body = JSON.stringify({ id: state.id, k, ranking, radius, label });
    return fetchJson("search", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
  }
  const body = new FormData();
  body.append("picture", file, file.name || "picture");
  for (const [name, value] of Object.entries({ k, ranking, radius, label })) if (value !== null) body.append(name, value);
  return fetchJson("search", { method: "POST", body, signal });
}

/** Search by a file; it becomes the state only once the service has taken it. */
async function give(file) {
  hideError();
  const most = collection?.limits.body_bytes;
  if (!collection?.upload) {
    showError(new Failure("This collection holds plain features: a picture cannot be searched for, only its items."));
    return;
  }
  if (file.size > most) {
    const mega = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
    showError(new Failure(`The picture has ${mega(file.size)}; this service takes up to ${mega(most)}.`));
    return;
  }
  searching?.abort();
  const control = (searching = new AbortController());
  waiting(true);
  try {
    const found = await busy(() => ask(file, control.signal));
    if (control.signal.aborted) return;
    const number = keep(file);
    history.pushState(null, "", address({ id: null, upload: number, view: "search" }));
    state = parse(location.hash);
    shown = searchOf({});
    show(found, uploads.get(number));
    showView();
    window.scrollTo(0, 0);
  } catch (error) {
    if (control.signal.aborted) return;
    if (!grid.querySelector("a")) {
      shown = null; // the outlines took the place of what was said there
      await follow();
    }
    showError(error, () => give(file));
  } finally {
    if (searching === control) {
      searching = null;
      waiting(false);
    }
  }
}

function keep(file) {
  lastUpload += 1;
  uploads.set(lastUpload, { file, name: file.name || "pasted picture", url: URL.createObjectURL(file) });
  if (uploads.size > KEPT_UPLOADS) {
    const [oldest, { url }] = uploads.entries().next().value;
    URL.revokeObjectURL(url);
    uploads.delete(oldest);
  }
  return lastUpload;
}

async function random() {
  hideError();
  try {
    const item = await busy(() => fetchJson("items/random"));
    await go({ id: item.id, upload: null, view: "search" });
  } catch (error) {
    showError(error, random);
  }
}

function waiting(on) {
  grid.setAttribute("aria-busy", String(on));
  if (!on) {
    for (const item of grid.querySelectorAll(".skeleton")) item.remove();
  } else if (!grid.children.length) {
    find("empty").hidden = true;
    grid.replaceChildren(...Array.from({ length: Math.min(state.k, 20) }, skeleton));
    showKey(collection.probabilities);
    if (!answer) outlineCode();
  }
}

function skeleton() {
  const card = make("div", { class: "card" }, make("div", { class: "frame" }), make("div", { class: "bar" }));
  return make("li", { class: "skeleton", "aria-hidden": "true" }, card);
}

function clearSearch() {
  answer = null;
  grid.replaceChildren();
  grid.setAttribute("aria-busy", "false");
  find("precision").textContent = "";
  find("time").textContent = "";
  find("key").hidden = true;
  find("query-picture").replaceChildren();
  find("query-label").textContent = "No query yet";
  find("query-origin").textContent = "choose one:";
  showCode(null);
}

function say(text, ...more) {
  find("empty").replaceChildren(make("p", { text }), ...more);
  find("empty").hidden = false;
}

async function welcome() {
  say(
    collection.upload
      ? "Pick, drop or paste a picture, or take a random item, to see what is nearest to it."
      : "Take a random item to see what is nearest to it.",
  );
  const control = (searching = new AbortController());
  try {
    const { buckets } = await fetchJson("collection/buckets?n=8&samples=1", { signal: control.signal });
    if (control.signal.aborted) return;
    const links = buckets
      .filter((bucket) => bucket.ids.length)
      .map((bucket) => sample(bucket.ids[0], bucket.bits));
    if (links.length) find("empty").append(make("p", { text: "Or start from one of these:" }), make("div", { class: "starters" }, ...links));
    else say("This collection is empty.");
  } catch (error) {
    showError(error, follow);
  }
}

function sample(id, bits) {
  const link = make("a", { href: byItem(id), draggable: "false", "aria-label": `Search by item ${id}` });
  link.append(frame(collection.pictures ? id : null, bits, ""));
  return link;
}

function show(found, upload) {
  answer = found;
  const { query, neighbours } = found;
  const picture = upload ? upload.url : collection.pictures ? query.id : null;
  const square = frame(picture, query.bits, upload ? "The picture given" : `Item ${query.id}`);
  find("query-picture").replaceChildren(...square.childNodes);
  find("query-label").textContent = query.labels.join(", ") || (upload ? "picture given" : "no label");
  find("query-origin").textContent = upload ? upload.name : `item ${query.id}`;
  showCode(query);

  const hadFocus = grid.contains(document.activeElement);
  grid.replaceChildren(...neighbours.map((neighbour, i) => make("li", {}, card(neighbour, i, found))));
  if (hadFocus) (grid.querySelector("a") ?? find("main")).focus({ preventScroll: true });
  find("empty").hidden = true;
  if (!neighbours.length) sayNone();
  find("key").hidden = !neighbours.length;
  if (neighbours.length) showKey(query.probabilities !== null);
  showSettings();
  find("precision").textContent = verdict(found);
  const { encode, search: scan } = found.milliseconds;
  find("time").textContent =
    `${encode > 0 ? `encoded in ${milliseconds(encode)} ms, ` : ""}searched in ${milliseconds(scan)} ms`;
}

function sayNone() {
  const limits = [
    state.label !== null && `of “${state.label}”`,
    state.radius !== null && `within ${count(state.radius, "bit")}`,
  ].filter(Boolean);
  if (!limits.length) {
    say("There is no other item.");
    return;
  }
  const button = make("button", { type: "button", text: "Remove the limits" });
  button.addEventListener("click", () => go({ radius: null, label: null }, { replace: true }));
  say(`No other item ${limits.join(" ")}.`, button);
}

function card(neighbour, i, { query, ranking }) {
  const name = neighbour.labels.join(", ") || (collection.labels ? "no label" : `item ${neighbour.id}`);
  const wrong = neighbour.relevant === false;
  const distance = ranking === "expected" ? neighbour.distance.toFixed(2) : count(neighbour.distance, "bit");
  const mark = query.labels.length > 1 ? "other labels" : "other label";
  const spoken = [`${i + 1}. ${name}`, wrong && mark, `distance ${distance}`, differing(neighbour.bits, query)];
  const link = make("a", {
    class: `card${wrong ? " wrong" : ""}`,
    href: byItem(neighbour.id),
    draggable: "false",
    tabindex: i === 0 ? "0" : "-1",
    "data-id": neighbour.id,
    title: [`Item ${neighbour.id}: ${name}`, neighbour.name, differing(neighbour.bits, query)].filter(Boolean).join("\n"),
    "aria-label": spoken.filter(Boolean).join(", "),
  });
  const square = frame(neighbour.has_picture ? neighbour.id : null, neighbour.bits, "");
  if (wrong) square.append(make("span", { class: "mark", text: `✕ ${mark}` }));
  link.append(
    square,
    make("div", { class: "line" }, make("span", { class: "name", text: name }), make("span", { class: "distance", text: distance })),
    strip(neighbour.bits, query),
  );
  return link;
}

function showKey(probabilities) {
  const entry = (kind, d, text) => make("span", {}, draw(1, 1, { [kind]: d }), text);
  const diamond = "M.5 .06l.44 .44l-.44 .44l-.44 -.44z";
  const entries = [entry("same-one", "M.3 .3h.4v.4h-.4z", "bit as the query’s"), entry("differs", diamond, "differs")];
  if (probabilities) entries.push(entry("differs-unsure", diamond, "differs, where the query is unsure"));
  find("key").replaceChildren(...entries);
  find("key").hidden = false;
}

function verdict({ query, neighbours, precision }) {
  const judged = neighbours.filter((neighbour) => neighbour.relevant !== null);
  if (precision !== null && judged.length) {
    const right = judged.filter((neighbour) => neighbour.relevant).length;
    return `${right} of ${judged.length} share ${query.labels.length > 1 ? "a" : "the"} label`;
  }
  const tally = new Map();
  for (const { labels } of neighbours) for (const name of labels) tally.set(name, (tally.get(name) ?? 0) + 1);
  const order = [...tally].sort((a, b) => b[1] - a[1]).slice(0, 3);
  if (!order.length) return neighbours.length ? `${count(neighbours.length, "neighbour")}` : "";
  return `Of ${neighbours.length}: ${order.map(([name, n]) => `${n} “${name}”`).join(", ")}`;
}

// ---- Settings

function showSettings() {
  const { k, ranking, radius, label } = state;
  find("by-hamming").checked = ranking === "hamming";
  find("by-expected").checked = ranking === "expected";
  find("by-expected").disabled = !mayExpect();
  find("ranking-hint").textContent = !mayExpect()
    ? `This ${collection.probabilities ? "query" : "model"} has no probabilities, which the expected distance needs.`
    : ranking === "hamming"
      ? "Counts the bits that differ."
      : "Weighs the bits by how sure they are.";
  find("settings-now").textContent = [
    ranking === "hamming" ? "Hamming" : "Expected",
    count(k, "neighbour"),
    radius !== null && `radius ${radius}`,
    label,
  ].filter(Boolean).join(", ");
  for (const [id, value] of [["k", k], ["k-range", k], ["radius", radius ?? ""], ["label", label ?? ""]]) {
    if (find(id).value !== String(value)) find(id).value = value;
  }
}

// A slider moves many times before it rests: its changes wait, and go along with whatever comes first.
let settling = null;
let pending = {};

function settle(changes) {
  clearTimeout(settling);
  pending = { ...pending, ...changes };
  settling = setTimeout(() => go({}, { replace: true }), 150);
}

function listenToSettings() {
  const setK = (from, to) => {
    const k = Number(find(from).value);
    if (!collection || !Number.isInteger(k) || k < 1 || k > collection.limits.k) return;
    find(to).value = k;
    settle({ k });
  };
  find("settings").addEventListener("submit", (event) => event.preventDefault());
  find("k-range").addEventListener("input", () => setK("k-range", "k"));
  find("k").addEventListener("input", () => setK("k", "k-range"));
  find("k").addEventListener("change", () => find("k").checkValidity() || showSettings());
  find("radius").addEventListener("input", () => {
    const { value, validity } = find("radius");
    if (validity.valid) settle({ radius: value === "" ? null : Number(value) });
  });
  find("label").addEventListener("change", () => go({ label: find("label").value || null }, { replace: true }));
  for (const ranking of ["hamming", "expected"]) {
    find(`by-${ranking}`).addEventListener("change", () => go({ ranking }, { replace: true }));
  }
}

/** Whether there are probabilities; the code of an item without a picture has none even if the model could give them. */
function mayExpect() {
  return collection.probabilities && (state.ranking === "expected" || !answer || answer.query.probabilities !== null);
}

function switchRanking() {
  if (mayExpect()) go({ ranking: state.ranking === "hamming" ? "expected" : "hamming" }, { replace: true });
}

// ---- Buckets

async function showBuckets() {
  if (bucketsShown || bucketing) return;
  const control = (bucketing = new AbortController());
  find("buckets-summary").textContent = "Loading …";
  find("bucket-list").replaceChildren(
    ...Array.from({ length: 9 }, () => make("li", { class: "bucket skeleton", "aria-hidden": "true" })),
  );
  try {
    const found = await busy(() => fetchJson("collection/buckets?n=24&samples=8", { signal: control.signal }));
    const { buckets, n_codes: codes, n_items: items } = found;
    const largest = buckets[0]?.size ?? 0;
    find("bucket-list").replaceChildren(...buckets.map((bucket) => bucketCard(bucket, largest)));
    const inside = buckets.reduce((sum, bucket) => sum + bucket.size, 0);
    find("buckets-summary").textContent = buckets.length
      ? `${count(items, "item")} in ${count(codes, "distinct code")}; these ${buckets.length} hold ${percent(inside / items)} of the items.`
      : "This collection is empty.";
    bucketsShown = true;
    hideError();
  } catch (error) {
    find("buckets-summary").textContent = "";
    find("bucket-list").replaceChildren();
    showError(error, showBuckets);
  } finally {
    bucketing = null;
  }
}

function bucketCard({ bits, size, ids, labels }, largest) {
  const bar = make("i");
  bar.style.width = `${(100 * size) / largest}%`;
  const item = make("li", { class: "bucket" });
  item.append(
    make("div", { class: "size" }, make("div", { class: "track", "aria-hidden": "true" }, bar), make("span", { text: count(size, "item") })),
    make("p", { class: "code", text: bits.replace(/(.{8})(?=.)/g, "$1 "), title: "The code of this bucket" }),
    make("div", { class: "samples" }, ...ids.map((id) => sample(id, bits))),
    ...shares(labels, size),
  );
  return item;
}

function shares(labels, size) {
  const order = Object.entries(labels).sort((a, b) => b[1] - a[1]);
  if (!order.length) return [];
  const named = order.slice(0, SHOWN_SHARES);
  const rest = order.slice(SHOWN_SHARES);
  // Items with several tags are counted once for each.
  const total = Math.max(size, order.reduce((sum, [, n]) => sum + n, 0));
  const bar = make("div", { class: "shares", "aria-hidden": "true" });
  for (const [, n] of named) bar.append(piece("", n / total));
  if (rest.length) bar.append(piece("rest", rest.reduce((sum, [, n]) => sum + n, 0) / total));
  const words = named.map(([name, n]) => `${name}: ${percent(n / size)}`);
  if (rest.length) words.push(`and ${count(rest.length, "other")}`);
  return [bar, make("p", { class: "text", text: words.join(", ") })];
}

function piece(kind, share) {
  const element = make("i", { class: kind });
  element.style.width = `${100 * share}%`;
  return element;
}

// ---- Views

function showView() {
  const buckets = state.view === "buckets";
  find("view-search").hidden = buckets;
  find("view-buckets").hidden = !buckets;
  find("to-search").href = address({ view: "search" });
  find("to-buckets").href = address({ view: "buckets" });
  for (const link of document.querySelectorAll(".views a")) link.removeAttribute("aria-current");
  find(buckets ? "to-buckets" : "to-search").setAttribute("aria-current", "page");
  document.title = `${buckets ? "Buckets of " : ""}${collection.name} · gphash`;
}

async function follow() {
  if (!collection) return;
  clearTimeout(settling);
  pending = {};
  state = parse(location.hash);
  showView();
  showSettings();
  if (state.view === "buckets") await showBuckets();
  else await search();
}

// ---- Keys, drop, paste

function move(key) {
  const cards = [...grid.querySelectorAll("a")];
  const at = cards.indexOf(document.activeElement);
  if (!cards.length) return false;
  let next = 0;
  if (at >= 0) {
    const top = cards[0].getBoundingClientRect().top;
    const columns = Math.max(1, cards.findIndex((one) => one.getBoundingClientRect().top > top + 1));
    const wide = cards.at(-1).getBoundingClientRect().top <= top + 1 ? cards.length : columns;
    next = at + { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide }[key];
    if (next < 0 || next >= cards.length) return true;
  }
  for (const one of cards) one.tabIndex = -1;
  cards[next].tabIndex = 0;
  cards[next].focus();
  return true;
}

function moveBit(key) {
  const cells = [...find("bits").children];
  const at = cells.indexOf(document.activeElement);
  const columns = find("bits").classList.contains("many") ? 32 : 16;
  const next = at + { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[key];
  if (!cells[next]) return;
  cells[at].tabIndex = -1;
  cells[next].tabIndex = 0;
  cells[next].focus();
}

const KEYS = {
  "/": () => collection.upload && find("file").click(),
  r: random,
  e: switchRanking,
  b: () => go({ view: state.view === "buckets" ? "search" : "buckets" }),
  "?": () => find("help").showModal(),
};

function press(event) {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || !collection) return;
  const arrow = key.startsWith("Arrow");
  if (target.closest("select, input[type=number], input[type=password]")) return;
  if (arrow && target.closest("input")) return;
  if (arrow && target.closest("#bits")) {
    event.preventDefault();
    moveBit(key);
  } else if (arrow) {
    if (state.view === "search" && !event.shiftKey && move(key)) event.preventDefault();
  } else if (Object.hasOwn(KEYS, key)) {
    event.preventDefault();
    KEYS[key]();
  }
}

function listen() {
  addEventListener("hashchange", follow);
  document.addEventListener("keydown", press);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address holds the state
    find("main").focus();
  });
  find("random").addEventListener("click", random);
  find("file").addEventListener("change", () => {
    const [file] = find("file").files;
    if (file) give(file);
    find("file").value = ""; // the same file may be picked again
  });
  grid.addEventListener("focusin", ({ target }) => {
    for (const one of grid.querySelectorAll("a[tabindex='0']")) one.tabIndex = -1;
    target.tabIndex = 0;
  });

  const bits = find("bits");
  bits.addEventListener("pointerover", ({ target }) => readBit(target.closest(".bit")));
  bits.addEventListener("pointerleave", () => readBit(bits.contains(document.activeElement) ? document.activeElement : null));
  bits.addEventListener("focusin", ({ target }) => readBit(target));
  bits.addEventListener("focusout", () => readBit(null));

  addEventListener("paste", ({ clipboardData }) => {
    const [file] = clipboardData?.files ?? [];
    if (file && !document.querySelector("dialog[open]")) give(file);
  });
  const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragover", (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    find("drop").hidden = false;
  });
  addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) find("drop").hidden = true;
  });
  addEventListener("drop", (event) => {
    find("drop").hidden = true;
    if (!carriesFiles(event)) return;
    event.preventDefault();
    if (event.dataTransfer.files[0]) give(event.dataTransfer.files[0]);
  });

  find("alert-close").addEventListener("click", hideError);
  find("open-help").addEventListener("click", KEYS["?"]);
  find("close-help").addEventListener("click", () => find("help").close());
  find("token-cancel").addEventListener("click", () => find("token-dialog").close());
}

// ---- Start

function showCollection() {
  const { name, n_items: items, n_codes: codes, n_bits: bits, method, upload, classes, limits } = collection;
  find("name").textContent = name;
  find("fact-items").textContent = numbers.format(items);
  find("fact-codes").textContent = numbers.format(codes);
  find("fact-bits").textContent = numbers.format(bits);
  find("fact-method").textContent = method;
  find("pick").hidden = !upload;
  find("upload-hint").textContent = upload ? "or drop or paste one" : "";
  find("k").max = limits.k;
  find("k-range").max = Math.min(100, limits.k, Math.max(1, items));
  find("radius").max = bits;
  find("label").append(...classes.map((label) => make("option", { value: label, text: label })));
  find("label").hidden = find("label-title").hidden = !classes.length;
}

async function start() {
  try {
    collection = await busy(() => fetchJson("collection"));
  } catch (error) {
    showError(error, start);
    return;
  }
  hideError();
  showCollection();
  document.body.classList.remove("starting");
  await follow();
}

find("settings-panel").open = matchMedia("(min-width: 40rem)").matches;
listen();
listenToSettings();
start();
