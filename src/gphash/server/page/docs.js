// The page of all requests: openapi.json, readable.

import { fetchJson, find, make } from "./service.js";

let schemas = {}; // by the names that references have

const resolved = (schema) => (schema?.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema) ?? {};
const code = (text) => make("code", { text });
const anchor = (method, path) => `${method}-${path.replace(/\W+/g, "-")}`;

/** What values a schema allows, in a few words. */
function kindOf(schema, depth = 0) {
  const { type, anyOf, items, enum: names, format, additionalProperties: values } = resolved(schema);
  if (anyOf) return anyOf.map((one) => kindOf(one, depth)).join(" or ");
  if (names) return names.map((name) => JSON.stringify(name)).join(" or ");
  if (type === "array") return `list of ${kindOf(items, depth + 1)}`;
  if (format === "binary") return "file";
  if (type === "object" && values && typeof values === "object") return `${kindOf(values, depth + 1)} by name`;
  if (type === "object" && schema.$ref) return depth ? resolved(schema).title : "object";
  return { integer: "whole number", number: "number", string: "text", boolean: "true or false" }[type] ?? type ?? "anything";
}

/** Limits, the default, and what it means. */
function detailsOf(schema, required) {
  const told = resolved(schema);
  const bounds = [told, ...(told.anyOf ?? [])].map(resolved);
  const limit = (name) => bounds.map((one) => one[name]).find((value) => value !== undefined);
  const range = (least, most, what = "") => {
    const low = limit(least);
    const high = limit(most);
    if (low === undefined && high === undefined) return null;
    if (low === high) return `${low}${what}`;
    if (high === undefined) return `at least ${low}${what}`;
    return low === undefined ? `at most ${high}${what}` : `${low} to ${high}${what}`;
  };
  const given = told.default !== undefined && told.default !== null && `${JSON.stringify(told.default)} if not given`;
  return [
    told.description,
    required && "needed",
    given,
    range("minimum", "maximum"),
    range("minLength", "maxLength", " letters"),
    range("minItems", "maxItems", " of them"),
  ].filter(Boolean).join("; ");
}

function table(rows) {
  const lines = rows.map(([name, kind, details]) =>
    make("tr", {}, make("th", { scope: "row" }, code(name)), make("td", { text: kind }), make("td", { text: details })),
  );
  return make("div", { class: "holder" }, make("table", {}, make("tbody", {}, ...lines)));
}

/** The fields of an object, and of objects within it. */
function fieldsOf(schema, prefix = "") {
  const { properties = {}, required = [] } = resolved(schema);
  return Object.entries(properties).flatMap(([name, field]) => {
    const inner = resolved(field).type === "array" ? resolved(field).items : field;
    const nested = inner?.$ref ? fieldsOf(inner, `${prefix}${name}${inner === field ? "" : "[]"}.`) : [];
    return [[`${prefix}${name}`, kindOf(field), detailsOf(field, required.includes(name) && !prefix)], ...nested];
  });
}

function bodyOf(content, title) {
  return Object.entries(content ?? {}).flatMap(([media, { schema }]) => {
    const rows = fieldsOf(schema);
    return rows.length ? [make("h3", { text: `${title}: ${media}` }), table(rows)] : [];
  });
}

function article(path, method, { summary, description, parameters = [], requestBody, responses, security }) {
  const [success, ...rest] = Object.entries(responses).sort(([a], [b]) => a - b);
  const made = make("article", { class: "panel", id: anchor(method, path) });
  made.append(
    make("h2", {}, make("span", { class: `method ${method}`, text: method.toUpperCase() }), code(path)),
    make("p", { text: `${description ?? summary}${security?.length ? " It needs a token." : ""}` }),
  );
  if (parameters.length) {
    const rows = parameters.map((one) => {
      const meaning = [one.description, detailsOf(one.schema, one.required && one.in !== "path")];
      return [one.name, kindOf(one.schema), [one.in === "path" ? "in the path" : null, ...meaning].filter(Boolean).join("; ")];
    });
    made.append(make("h3", { text: "Parameters" }), table(rows));
  }
  made.append(...bodyOf(requestBody?.content, "Body"));
  const answer = bodyOf(success[1].content, `Answer ${success[0]}`);
  if (answer.length) made.append(make("details", {}, make("summary", { text: `Answer ${success[0]}` }), ...answer.slice(1)));
  const errors = rest.map(([status, one]) => [status, one.description ?? "", ""]);
  if (errors.length) made.append(make("details", {}, make("summary", { text: "Other answers" }), table(errors)));
  return made;
}

async function start() {
  try {
    const described = await fetchJson("openapi.json");
    schemas = described.components?.schemas ?? {};
    find("about").textContent = `${described.info.title} ${described.info.version}. ${described.info.summary ?? ""}`;
    const every = Object.entries(described.paths).flatMap(([path, operations]) =>
      Object.entries(operations).map(([method, operation]) => [path, method, operation]),
    );
    const links = every.map(([path, method]) => {
      const name = make("span", { class: `method ${method}`, text: method.toUpperCase() });
      return make("li", {}, make("a", { href: `#${anchor(method, path)}` }, name, code(path)));
    });
    find("contents").replaceChildren(...links);
    find("requests").replaceChildren(...every.map((one) => article(...one)));
    if (location.hash) find(location.hash.slice(1))?.scrollIntoView();
  } catch (error) {
    find("state").textContent = error.message;
  }
}

start();
