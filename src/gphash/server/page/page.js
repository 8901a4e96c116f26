// The page of the service: search by an item, a picture, a text or a vector, and look into the buckets.
// The address after # is the state; everything on show follows from it and from the service's answers. Text of the
// collection (labels, titles, names) goes in by textContent only, and styles by CSSOM, as the content security policy
// asks.

import { count, draw, Failure, fetchJson, find, grouped, hasToken, make, request } from "./service.js";

const RANKINGS = ["hamming", "expected", "similarity"];
const DEFAULTS = {
  view: "search",
  key: null,
  upload: null,
  text: null,
  k: 20,
  ranking: "hamming", // "similarity" if the collection can be searched by that
  radius: null,
  label: null,
  where: null,
};
const SURE = 0.5; // |2P − 1| below which a bit of the query counts as unsure: P between 0.25 and 0.75
const STRANGE = 0.025; // familiarity of queries that resemble nothing
const CRISP = 64; // pictures narrower than this are scaled without smoothing
const SHOWN_SHARES = 4; // labels of a bucket that are named; the rest is counted
const KEPT_UPLOADS = 12;
const KEPT_PICTURES = 600;
const TOLD = ["title", "text", "link", "name"]; // values of an item that have a place of their own

const grid = find("grid");
const percent = (share) =>
  share > 0 && share < 0.01 ? "<1 %" : share > 0.99 && share < 1 ? ">99 %" : `${Math.round(100 * share)} %`;
const milliseconds = (time) => (time < 10 ? time.toFixed(1) : grouped(Math.round(time)));

let collection = null; // what GET /collection said
let state = { ...DEFAULTS };
let shown = null; // the search whose answer is on show, as its address
let answer = null; // that answer
let searching = null; // AbortController of the search under way
let bucketing = null;
let bucketsShown = false;
const uploads = new Map(); // number -> { file, name, url }, or { features, name }
let lastUpload = 0;

// ---- Address

function parse(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const whole = (name, least, most) => {
    const text = given.get(name) ?? "";
    return /^-?\d{1,16}$/.test(text) && Number(text) >= least ? Math.min(Number(text), most) : DEFAULTS[name];
  };
  const upload = whole("upload", 1, Infinity);
  const key = given.get("key") || null;
  const text = (upload === null && collection?.text && given.get("text")) || null;
  return {
    view: given.get("view") === "buckets" ? "buckets" : "search",
    key: upload === null && text === null && isKey(key) ? key : null,
    upload,
    text,
    k: whole("k", 1, collection?.limits.k ?? 1000),
    ranking: RANKINGS.includes(given.get("ranking")) ? given.get("ranking") : DEFAULTS.ranking,
    radius: whole("radius", 0, Infinity),
    label: given.get("label") || null,
    where: given.get("where") || null,
  };
}

const isKey = (text) => text !== null && (collection?.keys === "text" || /^-?\d{1,19}$/.test(text));

function address(changes) {
  const next = { ...state, ...changes };
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(next)) if (value !== DEFAULTS[name]) given.set(name, value);
  return `#${given}`;
}

const searchOf = (some) => address({ ...some, view: "search" });
const byItem = (key) => address({ key: String(key), upload: null, text: null, view: "search" });
const pictureOf = (key) => `pictures/${encodeURIComponent(key)}`;

function go(changes, { replace = false } = {}) {
  const target = address({ ...pending, ...changes });
  if (replace) history.replaceState(null, "", target);
  else if (target !== address({})) history.pushState(null, "", target);
  return follow();
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

const blobs = new Map(); // key -> promise of an object URL; only with a token, as <img> sends none

function blobOf(key) {
  if (!blobs.has(key)) {
    const fetched = request(pictureOf(key)).then(async (response) => URL.createObjectURL(await response.blob()));
    blobs.set(key, fetched);
    fetched.catch(() => blobs.delete(key));
    if (blobs.size > KEPT_PICTURES) {
      const [oldest, url] = blobs.entries().next().value;
      blobs.delete(oldest);
      url.then(URL.revokeObjectURL, () => {});
    }
  }
  return blobs.get(key);
}

const nearby = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      nearby.unobserve(target);
      blobOf(target.dataset.key).then(
        (url) => (target.src = url),
        () => target.dispatchEvent(new Event("error")),
      );
    }
  },
  { rootMargin: "300px" },
);

/** A square with the picture at an address or of a key, or with words if there is none or it does not load. */
function frame({ url = null, key = null }, words, alt = "") {
  const square = make("div", { class: "frame" });
  const instead = () => make("span", { class: "hint", text: words });
  if (url === null && key === null) {
    square.append(instead());
    return square;
  }
  const image = make("img", { alt, draggable: "false", decoding: "async" });
  image.addEventListener("load", () => image.classList.toggle("crisp", image.naturalWidth < CRISP));
  image.addEventListener("error", () => image.replaceWith(instead()));
  square.append(image);
  if (url !== null) {
    image.src = url;
  } else if (hasToken()) {
    image.dataset.key = key;
    nearby.observe(image);
  } else {
    image.loading = "lazy";
    image.src = pictureOf(key);
  }
  return square;
}

// ---- Items

/** What an item is called, and what more is said of it: by its title, its labels, its file, or its key. */
function namesOf({ key, labels, values }) {
  const names = [values.title, labels.join(", "), values.name, key === null ? null : `item ${key}`].filter(Boolean);
  return [...new Set(names)].map(String);
}

/** A link to elsewhere, in a window that cannot reach this one; what is no address of the web is only text. */
function linkOf(text) {
  let url = null;
  try {
    url = new URL(text);
  } catch {
    // shown as it is
  }
  if (!url || !["http:", "https:"].includes(url.protocol)) return make("span", { class: "link", text });
  const shown = text.replace(/^https?:\/\//, "").replace(/\/$/, "");
  return make("a", { class: "link", href: url.href, target: "_blank", rel: "noopener noreferrer", text: shown });
}

function columnsOf(values) {
  return Object.entries(values).filter(([name]) => !TOLD.includes(name));
}

/** Further columns, as a list of names and values. */
function tableOf(values) {
  const rows = columnsOf(values).map(([name, value]) =>
    make("div", {}, make("dt", { text: name }), make("dd", { text: typeof value === "number" ? String(value) : value })),
  );
  return rows.length ? [make("dl", { class: "columns" }, ...rows)] : [];
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
  if (state.key === null && state.upload === null && state.text === null) {
    shown = wanted;
    clearSearch();
    await welcome();
    return;
  }
  const upload = state.text === null ? uploads.get(state.upload) : { text: state.text, name: state.text };
  if (state.upload !== null && !upload) {
    shown = wanted;
    clearSearch();
    say("The picture or vector of this address was given in another tab or before a reload. Give it again.");
    return;
  }
  const control = (searching = new AbortController());
  waiting(true);
  try {
    const found = await busy(() => ask(upload ?? null, control.signal));
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
    const faulty = error.argument === "where";
    say(faulty ? "Nothing to show: the condition cannot be asked." : "Nothing to show: the search failed.");
    find("where").toggleAttribute("aria-invalid", faulty);
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
  return `${given.get("key")} ${given.get("upload")} ${given.get("text")}`;
}

/** Search by what was given, a picture, a text or a vector, or by the item of the state. */
function ask(given, signal) {
  const { k, ranking, radius, label, where } = state;
  const options = { k, ranking, radius, label, where, ties: true };
  if (given?.file) {
    const body = new FormData();
    body.append("picture", given.file, given.file.name || "picture");
    for (const [name, value] of Object.entries(options)) if (value !== null) body.append(name, value);
    return fetchJson("search", { method: "POST", body, signal });
  }
  // Digits stay digits: a number could not hold all of them.
  const key = collection.keys === "integer" ? state.key : JSON.stringify(state.key);
  const what = given?.text === undefined ? "features" : "text";
  const query = given ? `"${what}":${JSON.stringify(given[what])}` : `"key":${key}`;
  const body = `{${query},${JSON.stringify(options).slice(1)}`;
  return fetchJson("search", { method: "POST", headers: { "Content-Type": "application/json" }, body, signal });
}

function giveFile(file) {
  hideError();
  const most = collection?.limits.body_bytes;
  if (!collection?.upload) {
    showError(new Failure("A picture cannot be searched for in this collection."));
    return;
  }
  if (file.size > most) {
    const mega = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
    showError(new Failure(`The picture has ${mega(file.size)}; this service takes up to ${mega(most)}.`));
    return;
  }
  give({ file, name: file.name || "pasted picture" });
}

/** Numbers that are separated by commas or spaces, as many as the model takes. */
function giveVector(text) {
  const features = text.split(/[\s,;[\]()]+/).filter(Boolean).map(Number);
  const wanted = collection.n_features;
  const fault = features.some((number) => !Number.isFinite(number))
    ? "There is something that is no number."
    : features.length !== wanted && `There ${features.length === 1 ? "is" : "are"} ${count(features.length, "number")}; give ${grouped(wanted)}.`;
  find("vector-fault").textContent = fault || "";
  find("vector").toggleAttribute("aria-invalid", Boolean(fault));
  if (!fault) give({ features, name: `vector of ${count(wanted, "number")}` });
}

/** Search by a picture or a vector; it becomes the state only once the service has taken it. */
async function give(given) {
  hideError();
  searching?.abort();
  const control = (searching = new AbortController());
  waiting(true);
  try {
    const found = await busy(() => ask(given, control.signal));
    if (control.signal.aborted) return;
    const number = keep(given);
    history.pushState(null, "", address({ key: null, upload: number, text: null, view: "search" }));
    state = parse(location.hash);
    shown = searchOf({});
    show(found, uploads.get(number));
    showView();
    window.scrollTo(0, 0);
  } catch (error) {
    if (control.signal.aborted) return;
    if (!cards().length) {
      shown = null; // the outlines took the place of what was said there
      await follow();
    }
    showError(error, () => give(given));
  } finally {
    if (searching === control) {
      searching = null;
      waiting(false);
    }
  }
}

function keep(given) {
  lastUpload += 1;
  uploads.set(lastUpload, { ...given, url: given.file ? URL.createObjectURL(given.file) : null });
  if (uploads.size > KEPT_UPLOADS) {
    const [oldest, { url }] = uploads.entries().next().value;
    if (url) URL.revokeObjectURL(url);
    uploads.delete(oldest);
  }
  return lastUpload;
}

async function random() {
  hideError();
  try {
    const item = await busy(() => fetchJson("collection/random"));
    await go({ key: String(item.key), upload: null, text: null, view: "search" });
  } catch (error) {
    showError(error, random);
  }
}

function waiting(on) {
  grid.setAttribute("aria-busy", String(on));
  if (!on) {
    if (grid.querySelector(".skeleton")) grid.replaceChildren();
  } else if (!grid.children.length) {
    find("empty").hidden = true;
    grid.replaceChildren(sectionOf(null, Array.from({ length: Math.min(state.k, 20) }, skeleton)));
    showKey(collection.probabilities);
    if (!answer) outlineCode();
  }
}

function skeleton() {
  const bar = make("div", { class: "bar" });
  const card = collection.pictures ? [make("div", { class: "frame" }), bar] : [bar];
  return make("li", { class: "skeleton card", "aria-hidden": "true" }, ...card);
}

function clearSearch() {
  answer = null;
  grid.replaceChildren();
  grid.setAttribute("aria-busy", "false");
  find("precision").textContent = "";
  find("promise").hidden = find("beliefs").hidden = true;
  find("time").textContent = "";
  find("legend").hidden = true;
  find("query-picture").replaceChildren();
  find("query-label").textContent = "No query yet";
  find("query-origin").textContent = "choose one:";
  find("query-about").replaceChildren();
  find("query-more").hidden = true;
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
      : collection.text
      ? "Give a text, or take a random item, to see what is nearest to it."
      : "Give the key of an item, or take a random one, to see what is nearest to it.",
  );
  const control = (searching = new AbortController());
  try {
    const { buckets } = await fetchJson("collection/buckets?n=8&samples=1", { signal: control.signal });
    if (control.signal.aborted) return;
    const links = buckets.flatMap((bucket) => bucket.samples).map(sample);
    if (links.length) find("empty").append(make("p", { text: "Or start from one of these:" }), make("div", { class: collection.pictures ? "starters" : "starters list" }, ...links));
    else say("This collection is empty.");
  } catch (error) {
    showError(error, follow);
  }
}

/** An item to begin with: its picture, or its name. */
function sample({ key, title, has_picture: pictured }) {
  const name = title ?? `item ${key}`;
  const link = make("a", { href: byItem(key), draggable: "false", title: name, "aria-label": `Search by ${name}` });
  if (collection.pictures) link.append(frame({ key: pictured ? key : null }, name));
  else link.textContent = name;
  return link;
}

const kindOf = ({ file, text }) => (file ? "picture" : text === undefined ? "vector" : "text");

function show(found, given) {
  answer = found;
  const { query, hits } = found;
  const [name, ...more] = given ? [given.name] : namesOf(query);
  const picture = given ? { url: given.url } : { key: query.has_picture ? query.key : null };
  find("query-picture").hidden = !collection.pictures && !given?.url;
  find("query-picture").replaceChildren(...frame(picture, given ? kindOf(given) : "no picture", name).childNodes);
  find("query-label").textContent = given ? `${kindOf(given)} given` : name;
  find("query-origin").textContent = given ? given.name : `item ${query.key}`;
  showAbout(query, more.filter((text) => text !== `item ${query.key}`));
  showCode(query);

  const hadFocus = grid.contains(document.activeElement);
  grid.replaceChildren(...sections(found));
  if (hadFocus) (cards()[0] ?? find("main")).focus({ preventScroll: true });
  if (cards().length) cards()[0].tabIndex = 0;
  find("empty").hidden = true;
  if (!hits.length) sayNone();
  find("legend").hidden = !hits.length;
  if (hits.length) showKey(query.probabilities !== null);
  showSettings();
  find("where").removeAttribute("aria-invalid");
  find("precision").textContent = verdict(found);
  showBeliefs(query);
  showPromise(found);
  const { encode, search: scan } = found.milliseconds;
  find("time").textContent =
    `${encode > 0 ? `encoded in ${milliseconds(encode)} ms, ` : ""}searched in ${milliseconds(scan)} ms`;
}

/** The classes that the query probably has. */
function showBeliefs({ classes, familiarity }) {
  const likely = (classes ?? []).filter(({ probability }, i) => i === 0 || probability >= 0.05);
  const names = likely.map(({ label, probability }) => `${label} (${percent(probability)})`);
  const usual = familiarity !== null && `as familiar as ${percent(familiarity)} of what was taught`;
  find("beliefs").textContent = [names.length && `${familiarity !== null && familiarity <= STRANGE ? "If anything" : "Probably"} ${names.join(", ")}`, usual].filter(Boolean).join("; ");
  find("beliefs").hidden = !names.length;
}

/** Whether anything is similar, and as far as which neighbour a promise holds. */
function showPromise({ hits, nothing_similar: nothing, promised }) {
  const [level, n] = [percent(promised?.precision ?? 0), promised?.hits ?? 0];
  find("promise").textContent = nothing
    ? `Nothing similar here${hits.length ? "; these are the nearest" : ""}.`
    : n > 0 && n < hits.length ? `The first ${n} are similar in ${level} of all cases; those after them less often.` : "";
  find("promise").hidden = !find("promise").textContent;
}

/** What is known of the query beside its name. */
function showAbout({ values }, more) {
  find("query-more").textContent = more.join(", ");
  find("query-more").hidden = !more.length;
  const about = [];
  if (values.text) about.push(make("p", { class: "words", text: values.text }));
  if (values.link) about.push(make("p", {}, linkOf(values.link)));
  find("query-about").replaceChildren(...about, ...tableOf(values));
}

function sayNone() {
  const limits = [
    state.label !== null && `of “${state.label}”`,
    state.where !== null && `with ${state.where}`,
    state.radius !== null && `within ${count(state.radius, "bit")}`,
  ].filter(Boolean);
  if (!limits.length) {
    say("There is no other item.");
    return;
  }
  const button = make("button", { type: "button", text: "Remove the limits" });
  button.addEventListener("click", () => go({ radius: null, label: null, where: null }, { replace: true }));
  say(`No other item ${limits.join(" ")}.`, button);
}

// ---- Hits

const cards = () => [...grid.querySelectorAll("a.main")];
const distanceOf = ({ distance, probability }, ranking) =>
  ranking === "similarity" ? percent(probability) : ranking === "expected" ? distance.toFixed(2) : count(distance, "bit");
const far = (distance, ranking) => (ranking === "similarity" ? `similar with a probability of ${distance}` : `${distance} away`);

/** Hits that share a distance stand together, as nothing tells which of them is nearer; others stand in their order. */
function sections(found) {
  const { hits, ranking, ties } = found;
  const runs = [];
  for (const hit of hits) {
    const by = ranking === "similarity" ? "probability" : "distance";
    if (runs.at(-1)?.[0][by] === hit[by]) runs.at(-1).push(hit);
    else runs.push([hit]);
  }
  const made = [];
  const flush = (alone) => {
    if (!alone.length) return;
    const last = distanceOf(alone.at(-1), ranking);
    const first = ranking === "hamming" ? alone[0].distance : distanceOf(alone[0], ranking);
    const order = ranking === "similarity" ? "most probable" : "nearest";
    const title = alone.length === 1 ? far(last, ranking) : `${far(`${first} to ${last}`, ranking)}, ${order} first`;
    made.push(sectionOf(title, alone.map((hit) => card(hit, 1, found))));
  };
  let alone = [];
  runs.forEach((run, i) => {
    const all = i === runs.length - 1 ? Math.max(ties ?? 0, run.length) : run.length;
    if (all === 1) {
      alone.push(run[0]);
      return;
    }
    flush(alone);
    alone = [];
    made.push(sectionOf(tied(run, all, found), run.map((hit) => card(hit, all, found))));
  });
  flush(alone);
  return made;
}

/** How many share a distance; the last ones may be more than are shown, and are counted up to the largest k. */
function tied(run, all, { hits, ranking }) {
  const counted = hits.length - run.length + all < collection.limits.k;
  const many = `${counted ? "" : "at least "}${count(all, "item")}`;
  const distance = distanceOf(run[0], ranking);
  const none = ranking === "similarity" ? "none more than another" : "none nearer than another";
  return run.length < all
    ? `${grouped(run.length)} of ${many} that are ${far(distance, ranking)}, ${none}`
    : `${many} are ${far(distance, ranking)}, ${none}`;
}

function sectionOf(title, items) {
  const list = make("ul", { class: collection.pictures ? "cards" : "rows" }, ...items);
  return make("section", {}, ...(title ? [make("h3", { text: title })] : []), list);
}

function card(hit, all, { query, ranking, hits, promised }) {
  const [name, ...more] = namesOf(hit);
  const wrong = hit.relevant === false;
  const distance = distanceOf(hit, ranking);
  const mark = query.labels.length > 1 ? "other labels" : "other label";
  const shared = all > 1 && `shared by ${count(all, "item")}`;
  const likely = hit.probability !== null && `similar with a probability of ${percent(hit.probability)}`;
  const away = `distance ${ranking === "similarity" ? count(hit.distance, "bit") : distance}`;
  const spoken = [name, ...more, wrong && mark, away, likely, shared, differing(hit.bits, query)];
  const columns = columnsOf(hit.values).map(([column, value]) => `${column}: ${value}`);
  const link = make("a", {
    class: "main",
    href: byItem(hit.key),
    draggable: "false",
    tabindex: "-1",
    "data-key": hit.key,
    title: [name, ...more, `item ${hit.key}`, ...columns, likely, differing(hit.bits, query)].filter(Boolean).join("\n").slice(0, 1000),
    "aria-label": spoken.filter(Boolean).join(", "),
  });
  const { text, link: elsewhere } = hit.values;
  const head = make("div", { class: "line" }, make("span", { class: "name", text: name }), make("span", { class: "distance", text: hit.probability === null || ranking === "similarity" ? distance : `${distance}, ${percent(hit.probability)}` }));
  const badge = wrong ? [make("span", { class: "mark", text: `✕ ${mark}` })] : [];
  if (collection.pictures) {
    const square = frame({ key: hit.has_picture ? hit.key : null }, text ?? "no picture");
    square.append(...badge);
    link.append(square, head);
  } else {
    link.append(head);
  }
  const beyond = promised && hits.indexOf(hit) >= promised.hits;
  const item = make("li", { class: `card${wrong ? " wrong" : ""}${beyond ? " beyond" : ""}` }, link);
  const lines = more.filter((one) => one !== `item ${hit.key}` || !collection.pictures);
  if (lines.length || (badge.length && !collection.pictures)) {
    const told = lines.map((one) => make("span", { text: one }));
    item.append(make("p", { class: "more" }, ...told, ...(collection.pictures ? [] : badge)));
  }
  if (text && (hit.has_picture || !collection.pictures)) item.append(make("p", { class: "words", text }));
  if (!collection.pictures) item.append(...tableOf(hit.values));
  if (elsewhere) item.append(linkOf(elsewhere));
  item.append(strip(hit.bits, query));
  return item;
}

function showKey(probabilities) {
  const entry = (kind, d, text) => make("span", {}, draw(1, 1, { [kind]: d }), text);
  const diamond = "M.5 .06l.44 .44l-.44 .44l-.44 -.44z";
  const entries = [entry("same-one", "M.3 .3h.4v.4h-.4z", "bit as the query’s"), entry("differs", diamond, "differs")];
  if (probabilities) entries.push(entry("differs-unsure", diamond, "differs, where the query is unsure"));
  find("legend").replaceChildren(...entries);
  find("legend").hidden = false;
}

function verdict({ query, hits, precision }) {
  const judged = hits.filter((hit) => hit.relevant !== null);
  if (precision !== null && judged.length) {
    const right = judged.filter((hit) => hit.relevant).length;
    return `${right} of ${judged.length} share ${query.labels.length > 1 ? "a" : "the"} label`;
  }
  const tally = new Map();
  for (const { labels } of hits) for (const name of labels) tally.set(name, (tally.get(name) ?? 0) + 1);
  const order = [...tally].sort((a, b) => b[1] - a[1]).slice(0, 3);
  if (!order.length) return hits.length ? count(hits.length, "neighbour") : "";
  return `Of ${hits.length}: ${order.map(([name, n]) => `${n} “${name}”`).join(", ")}`;
}

// ---- Settings

function showSettings() {
  const { k, ranking, radius, label, where } = state;
  for (const name of RANKINGS) find(`by-${name}`).checked = ranking === name;
  find("by-expected").disabled = !mayExpect();
  find("by-similarity").disabled = !collection.similarity;
  find("ranking-hint").textContent =
    ranking === "similarity" ? "The most probably similar first."
    : ranking === "expected" ? "Weighs the bits by how sure they are."
    : mayExpect() ? "Counts the bits that differ."
    : `This ${collection.probabilities ? "query" : "model"} has no probabilities, which the expected distance needs.`;
  find("settings-now").textContent = [
    { hamming: "Hamming", expected: "Expected", similarity: "Similar" }[ranking],
    count(k, "neighbour"),
    radius !== null && `radius ${radius}`,
    label,
    where,
  ].filter(Boolean).join(", ");
  const fields = { k, "k-range": k, radius: radius ?? "", label: label ?? "", where: where ?? "" };
  for (const [id, value] of Object.entries(fields)) if (find(id).value !== String(value)) find(id).value = value;
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
  const narrow = () => go({ where: find("where").value.trim() || null }, { replace: true });
  find("settings").addEventListener("submit", (event) => {
    event.preventDefault();
    narrow();
  });
  find("where").addEventListener("change", narrow);
  find("k-range").addEventListener("input", () => setK("k-range", "k"));
  find("k").addEventListener("input", () => setK("k", "k-range"));
  find("k").addEventListener("change", () => find("k").checkValidity() || showSettings());
  find("radius").addEventListener("input", () => {
    const { value, validity } = find("radius");
    if (validity.valid) settle({ radius: value === "" ? null : Number(value) });
  });
  find("label").addEventListener("change", () => go({ label: find("label").value || null }, { replace: true }));
  for (const ranking of RANKINGS) {
    find(`by-${ranking}`).addEventListener("change", () => go({ ranking }, { replace: true }));
  }
}

/** Whether there are probabilities; the code of an item without a picture has none even if the model could give them. */
function mayExpect() {
  return collection.probabilities && (state.ranking === "expected" || !answer || answer.query.probabilities !== null);
}

function switchRanking() {
  const may = { hamming: true, expected: mayExpect(), similarity: collection.similarity };
  const possible = RANKINGS.filter((name) => may[name]);
  go({ ranking: possible[(possible.indexOf(state.ranking) + 1) % possible.length] }, { replace: true });
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

function bucketCard({ bits, size, samples, labels }, largest) {
  const bar = make("i");
  bar.style.width = `${(100 * size) / largest}%`;
  const item = make("li", { class: "bucket" });
  item.append(
    make("div", { class: "size" }, make("div", { class: "track", "aria-hidden": "true" }, bar), make("span", { text: count(size, "item") })),
    make("p", { class: "code", text: bits.replace(/(.{8})(?=.)/g, "$1 "), title: "The code of this bucket" }),
    make("div", { class: collection.pictures ? "samples" : "names" }, ...samples.map(sample)),
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
  if (state.key !== null) find("key").value = state.key;
  if (state.text !== null) find("text").value = state.text;
  if (state.view === "buckets") await showBuckets();
  else await search();
}

// ---- Keys, drop, paste

function move(key) {
  const every = cards();
  const at = every.indexOf(document.activeElement);
  if (!every.length) return false;
  const next = at < 0 ? every[0] : beside(every, at, key);
  if (!next) return true;
  for (const one of every) one.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  next.parentElement.scrollIntoView({ block: "nearest" });
  return true;
}

/** The card to the left or right in the order of the page, or the nearest one in the row above or below. */
function beside(every, at, key) {
  if (key === "ArrowLeft" || key === "ArrowRight") return every[at + (key === "ArrowLeft" ? -1 : 1)];
  const boxes = every.map((one) => one.parentElement.getBoundingClientRect());
  const way = key === "ArrowUp" ? -1 : 1;
  const rest = boxes.map((box, i) => [way * (box.top - boxes[at].top), Math.abs(box.left - boxes[at].left), i]);
  rest.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  const row = rest.find(([down]) => down > 1);
  return row && every[row[2]];
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
  "/": () => (collection.upload ? find("file").click() : collection.text && find("text").focus()),
  r: random,
  e: switchRanking,
  b: () => go({ view: state.view === "buckets" ? "search" : "buckets" }),
  "?": () => find("help").showModal(),
};

function press(event) {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]") || !collection) return;
  const arrow = key.startsWith("Arrow");
  if (target.closest("select, textarea, input:not([type=radio], [type=range], [type=file])")) return;
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
    if (file) giveFile(file);
    find("file").value = ""; // the same file may be picked again
  });
  find("by-key").addEventListener("submit", (event) => {
    event.preventDefault();
    const key = collection.keys === "text" ? find("key").value : find("key").value.trim();
    if (isKey(key) && key) go({ key, upload: null, text: null, view: "search" });
    else showError(new Failure("The keys of this collection are whole numbers."));
  });
  find("by-text").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = find("text").value.trim();
    if (text) go({ text, key: null, upload: null, view: "search" });
  });
  find("by-vector").addEventListener("submit", (event) => {
    event.preventDefault();
    giveVector(find("vector").value);
  });
  grid.addEventListener("focusin", ({ target }) => {
    if (!target.matches("a.main")) return;
    for (const one of cards()) one.tabIndex = -1;
    target.tabIndex = 0;
  });

  const bits = find("bits");
  bits.addEventListener("pointerover", ({ target }) => readBit(target.closest(".bit")));
  bits.addEventListener("pointerleave", () => readBit(bits.contains(document.activeElement) ? document.activeElement : null));
  bits.addEventListener("focusin", ({ target }) => readBit(target));
  bits.addEventListener("focusout", () => readBit(null));

  addEventListener("paste", ({ clipboardData }) => {
    const [file] = clipboardData?.files ?? [];
    if (file && !document.querySelector("dialog[open]")) giveFile(file);
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
    if (event.dataTransfer.files[0]) giveFile(event.dataTransfer.files[0]);
  });

  find("alert-close").addEventListener("click", hideError);
  find("open-help").addEventListener("click", KEYS["?"]);
  find("close-help").addEventListener("click", () => find("help").close());
}

// ---- Start

function showCollection() {
  const { name, n_items: items, n_codes: codes, n_bits: bits, method, upload, classes, limits } = collection;
  find("name").textContent = name;
  find("fact-items").textContent = grouped(items);
  find("fact-codes").textContent = grouped(codes);
  find("fact-bits").textContent = grouped(bits);
  find("fact-method").textContent = method;
  find("pick").hidden = !upload;
  find("by-text").hidden = !collection.text;
  find("upload-hint").textContent = upload ? "or drop or paste one" : "";
  find("key").inputMode = collection.keys === "integer" ? "numeric" : "text";
  find("vector-hint").textContent = `${count(collection.n_features, "number")}, separated by commas or spaces`;
  find("k").max = limits.k;
  find("k-range").max = Math.min(limits.k, Math.max(1, items));
  find("radius").max = bits;
  find("label").append(...classes.map((label) => make("option", { value: label, text: label })));
  find("label").hidden = find("label-title").hidden = !classes.length;
  find("column-list").replaceChildren(...Object.entries(collection.columns).map(columnButton));
  find("query-picture").hidden = !collection.pictures;
}

/** A column that conditions may name; pressing it writes it into the condition. */
function columnButton([name, type]) {
  const kind = { integer: "whole number", real: "number", text: "text" }[type] ?? type;
  const written = /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
  const button = make("button", { type: "button", title: kind, text: name });
  button.addEventListener("click", () => {
    const field = find("where");
    field.setRangeText(written, field.selectionStart, field.selectionEnd, "end");
    field.focus();
  });
  return make("li", {}, button);
}

async function start() {
  try {
    collection = await busy(() => fetchJson("collection"));
  } catch (error) {
    showError(error, start);
    return;
  }
  hideError();
  if (collection.similarity) DEFAULTS.ranking = "similarity";
  showCollection();
  document.body.classList.remove("starting");
  await follow();
}

find("settings-panel").open = matchMedia("(min-width: 40rem)").matches;
listen();
listenToSettings();
start();
