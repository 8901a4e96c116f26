// Rows to codes with codes.onnx, here and nowhere else. `encode` is all there is to it; the rest is the page.

import * as ort from "./vendor/ort.wasm.min.mjs";

ort.env.wasm.wasmPaths = new URL("./vendor/", import.meta.url).href;
ort.env.wasm.numThreads = 1; // more need headers that a plain file server does not send

const element = (id) => document.getElementById(id);
const session = await ort.InferenceSession.create("codes.onnx").catch((error) => {
  element("status").textContent = `the model cannot be loaded: ${error.message}`;
  throw error;
});
const nFeatures = session.inputMetadata?.[0]?.shape?.[1];

/** Packed codes, one Uint8Array a row, and the other outputs, of rows that are arrays of numbers. */
export async function encode(rows) {
  const width = rows[0].length;
  const wrong = rows.findIndex((row) => row.length !== (nFeatures ?? width) || !row.every(Number.isFinite));
  if (wrong >= 0) throw new Error(`row ${wrong + 1} is not ${nFeatures ?? width} numbers`);
  const found = await session.run({ rows: new ort.Tensor("float32", Float32Array.from(rows.flat()), [rows.length, width]) });
  return Object.fromEntries(Object.entries(found).map(([name, tensor]) => [name, split(tensor)]));
}

function split({ data, dims: [n, width] }) {
  return Array.from({ length: n }, (_, i) => data.slice(i * width, (i + 1) * width));
}

function hexadecimal(code) {
  return Array.from(code, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

element("encode").addEventListener("click", async () => {
  const lines = element("rows").value.split("\n").filter((line) => line.trim());
  try {
    const { codes } = lines.length ? await encode(lines.map((line) => line.trim().split(/[\s,;]+/).map(Number))) : { codes: [] };
    element("codes").textContent = codes.map(hexadecimal).join("\n");
    element("status").textContent = `${codes.length} rows encoded`;
  } catch (error) {
    element("codes").textContent = "";
    element("status").textContent = error.message;
  }
});

// A pad of 8 × 8 cells from 0 to 16, as the digits of scikit-learn are.
const canvas = element("canvas"), ink = new Float32Array(64);

function show() {
  const image = new ImageData(8, 8);
  ink.forEach((value, i) => image.data.set([0, 0, 0].map(() => 255 - value * 15.9).concat(255), 4 * i));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

async function look() {
  show();
  const found = await encode([Array.from(ink)]);
  const bits = Array.from(found.codes[0], (byte) => byte.toString(2).padStart(8, "0")).join("");
  element("bits").replaceChildren(...Array.from(bits, (bit) => {
    const cell = document.createElement("span");
    cell.className = bit === "1" ? "one" : "";
    return cell;
  }));
  element("bits").title = bits;
  element("classes").replaceChildren(...Array.from(found.class_probabilities?.[0] ?? [], (chance, number) => {
    const row = document.createElement("tr"), meter = document.createElement("meter");
    meter.value = chance;
    row.insertCell().textContent = number;
    row.insertCell().append(meter);
    row.insertCell().textContent = chance.toFixed(3);
    return row;
  }));
}

function draw(event) {
  if (!event.buttons) return;
  const box = canvas.getBoundingClientRect();
  const x = (8 * (event.clientX - box.left)) / box.width, y = (8 * (event.clientY - box.top)) / box.height;
  for (let i = 0; i < 64; i++) {
    const distance = Math.hypot((i % 8) + 0.5 - x, Math.floor(i / 8) + 0.5 - y);
    ink[i] = Math.min(16, Math.max(ink[i], 16 * (1.3 - distance)));
  }
  look();
}

if (nFeatures === 64) {
  canvas.addEventListener("pointerdown", draw);
  canvas.addEventListener("pointermove", draw);
  element("clear").addEventListener("click", () => look(ink.fill(0)));
  element("pad").hidden = false;
  await look();
}
window.encode = encode; // to try it from the console
element("encode").disabled = false;
element("status").textContent = `ready: rows of ${nFeatures} numbers`;
