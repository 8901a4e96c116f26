// What the pages share: elements, numbers in words, and requests with a token.

const TOKEN = "gphash-token";

export const find = (id) => document.getElementById(id);
export const hasToken = () => sessionStorage.getItem(TOKEN) !== null;
const numbers = new Intl.NumberFormat("en-GB");
export const grouped = (n) => (typeof n === "number" ? numbers.format(n) : String(n));
export const count = (n, one, many = `${one}s`) => `${grouped(n)} ${n === 1 ? one : many}`;

// ---- Elements

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") element.textContent = value;
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

export function draw(width, height, paths, properties = {}) {
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

// ---- Requests

export class Failure extends Error {
  constructor(message, status = 0, argument = null) {
    super(message);
    this.status = status;
    this.argument = argument;
  }
  get mayPass() {
    return [0, 408, 429].includes(this.status) || this.status >= 500;
  }
}

export async function request(path, options = {}) {
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
  let argument = null;
  try {
    const { error } = await response.json();
    [message, argument] = [error.message || message, error.argument];
  } catch {
    // Not this service's own words, such as a proxy's page: the status has to do.
  }
  return new Failure(message, response.status, argument);
}

/** Whole numbers that JavaScript cannot hold come as the text of their digits: keys may have 19 of them. */
function whole(name, value, context) {
  const exact = typeof value !== "number" || !Number.isInteger(value) || Number.isSafeInteger(value);
  return exact || !/^-?\d+$/.test(context?.source ?? "") ? value : context.source;
}

export const fetchJson = async (path, options) => JSON.parse(await (await request(path, options)).text(), whole);

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
    find("token-cancel").onclick = () => dialog.close();
    dialog.returnValue = "";
    dialog.showModal();
    input.focus();
  });
  return asking;
}
