"""Small networks in the ONNX format that tests make themselves, and what each must give."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the package onnx")
pytest.importorskip("onnxruntime", reason="needs the extra onnx")
tokenizers = pytest.importorskip("tokenizers", reason="needs the extra onnx")

WORDS = ("[UNK]", "[CLS]", "[SEP]", "cat", "dog", "bird", "bank", "loan", "coin", "the", "a", "is", "sees")
N_WORDS, WIDTH = len(WORDS), 6
FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def save(path, nodes, inputs, outputs, weights):
    """Write a network; inputs and outputs are (name, type, shape)."""
    graph = onnx.helper.make_graph(
        nodes,
        "small",
        [onnx.helper.make_tensor_value_info(*one) for one in inputs],
        [onnx.helper.make_tensor_value_info(*one) for one in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


def table(seed=0, n_words=N_WORDS):
    """A row for each word."""
    return np.random.default_rng(seed).normal(size=(n_words, WIDTH)).astype(np.float32)


def text_model(folder, seed=0, n_words=N_WORDS, inputs=("input_ids", "attention_mask"), home="onnx/model.onnx"):
    """A folder as Hugging Face exports it: every token has its row of a table."""
    lookup = onnx.helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    given = [(name, INT64, ["batch", "length"]) for name in inputs]
    given_out = [("last_hidden_state", FLOAT, ["batch", "length", WIDTH])]
    save(folder / home, [lookup], given, given_out, {"table": table(seed, n_words)})
    tokenizer().save(str(folder / "tokenizer.json"))
    return folder


def tokenizer():
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(dict(zip(WORDS, range(99), strict=False)), "[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return made


def text_row(text, seed=0, pooling="mean", normalised=True, tokens=512):
    """What an encoder must make of a text of words with spaces between them."""
    words = [WORDS.index(word) if word in WORDS else 0 for word in text.split()]
    rows = table(seed)[[1, *words[: tokens - 2], 2]].astype(np.float64)
    row = {"mean": rows.mean(axis=0), "cls": rows[0], "max": rows.max(axis=0), "last": rows[-1]}[pooling]
    return row / np.linalg.norm(row) if normalised else row


def picture_weights(seed=0):
    return np.random.default_rng(seed).normal(size=(3, WIDTH)).astype(np.float32)


def picture_model(path, shape=("n", 3, "h", "w"), seed=0):
    """A network that mixes the means of the colours."""
    last = shape[3] == 3
    nodes = [onnx.helper.make_node("Transpose", ["pixel_values"], ["first"], perm=[0, 3, 1, 2])] if last else []
    nodes += [
        onnx.helper.make_node("GlobalAveragePool", ["first" if last else "pixel_values"], ["pooled"]),
        onnx.helper.make_node("Flatten", ["pooled"], ["flat"]),
        onnx.helper.make_node("MatMul", ["flat", "weights"], ["features"]),
    ]
    outputs = [("features", FLOAT, ["n", WIDTH])]
    return save(path, nodes, [("pixel_values", FLOAT, list(shape))], outputs, {"weights": picture_weights(seed)})


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
