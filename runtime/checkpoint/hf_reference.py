"""Safetensors files and the two model families as their published code has them, in plain Python: nothing here knows weft-train.

Files: 8 bytes of length, JSON, data. Models: GPT-2 (Conv1D: x · W, W is [inputs × outputs]) and Llama (Linear: x · Wᵀ; rotary
positions over half heads, grouped queries, RMSNorm, SwiGLU); the mean cross-entropy of a batch.
"""

import json
import math
import struct

CODES = {"F64": "d", "F32": "f"}


def read(path):
    """{name: (dtype, shape, flat list of numbers)}."""
    with open(path, "rb") as source:
        (length,) = struct.unpack("<Q", source.read(8))
        header, data = json.loads(source.read(length)), source.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = data[begin:end]
        if entry["dtype"] == "U8":
            values = list(raw)
        elif entry["dtype"] == "BF16":
            values = [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]
        else:
            values = list(struct.unpack(f"<{len(raw) // struct.calcsize(CODES[entry['dtype']])}{CODES[entry['dtype']]}", raw))
        assert len(values) == math.prod(entry["shape"]), name
        tensors[name] = (entry["dtype"], entry["shape"], values)
    return tensors


def write(path, tensors):
    """The same way round; BF16 cuts what a float has more."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, values) in tensors.items():
        if dtype == "BF16":
            raw = b"".join(struct.pack("<f", value)[2:] for value in values)
        elif dtype == "U8":
            raw = bytes(values)
        else:
            raw = struct.pack(f"<{len(values)}{CODES[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def rows(tensor):
    _, shape, values = tensor
    return [values[i * shape[1]:(i + 1) * shape[1]] for i in range(shape[0])]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def softmax(scores):
    largest = max(scores)
    powers = [math.exp(score - largest) for score in scores]
    total = sum(powers)
    return [power / total for power in powers]


def attend(queries, keys, values, heads, kv_heads):
    """Causal attention; each argument [positions][width]."""
    width = len(queries[0]) // heads
    out = [[] for _ in queries]
    for head in range(heads):
        group = head // (heads // kv_heads)
        mine, theirs = slice(head * width, (head + 1) * width), slice(group * width, (group + 1) * width)
        for position, query in enumerate(queries):
            shares = softmax([dot(query[mine], keys[p][theirs]) / math.sqrt(width) for p in range(position + 1)])
            out[position] += [sum(share * values[p][theirs][i] for p, share in enumerate(shares)) for i in range(width)]
    return out


def cross_entropy(states, table, targets):
    total = 0.0
    for state, target in zip(states, targets, strict=True):
        logits = [dot(state, row) for row in table]
        largest = max(logits)
        total += largest + math.log(sum(math.exp(value - largest) for value in logits)) - logits[target]
    return total / len(targets)


def gpt2_loss(config, tensors, inputs, targets):
    """Of one sequence of tokens."""
    flat = {name: tensor[2] for name, tensor in tensors.items()}

    def conv1d(x, name):
        matrix, bias = rows(tensors[name + ".weight"]), flat[name + ".bias"]
        return [[bias[o] + sum(x_p[i] * matrix[i][o] for i in range(len(x_p))) for o in range(len(bias))] for x_p in x]

    def norm(x, name):
        out = []
        for row in x:
            mean = sum(row) / len(row)
            deviation = math.sqrt(sum((v - mean) ** 2 for v in row) / len(row) + config["layer_norm_epsilon"])
            out.append([(v - mean) / deviation * w + b for v, w, b in zip(row, flat[name + ".weight"], flat[name + ".bias"], strict=True)])
        return out

    def gelu(v):
        return 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v ** 3)))

    def add(a, b):
        return [[x + y for x, y in zip(p, q, strict=True)] for p, q in zip(a, b, strict=True)]

    width = config["n_embd"]
    wte, wpe = rows(tensors["wte.weight"]), rows(tensors["wpe.weight"])
    x = [[a + b for a, b in zip(wte[token], wpe[position], strict=True)] for position, token in enumerate(inputs)]
    for layer in range(config["n_layer"]):
        name = f"h.{layer}."
        qkv = conv1d(norm(x, name + "ln_1"), name + "attn.c_attn")
        parts = [[row[k * width:(k + 1) * width] for row in qkv] for k in range(3)]
        x = add(x, conv1d(attend(*parts, config["n_head"], config["n_head"]), name + "attn.c_proj"))
        inner = [[gelu(v) for v in row] for row in conv1d(norm(x, name + "ln_2"), name + "mlp.c_fc")]
        x = add(x, conv1d(inner, name + "mlp.c_proj"))
    return cross_entropy(norm(x, "ln_f"), wte, targets)


def llama_loss(config, tensors, inputs, targets):
    """Of one sequence of tokens."""
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]

    def linear(x, name):
        matrix = rows(tensors[name + ".weight"])
        return [[dot(row, weights) for weights in matrix] for row in x]

    def norm(x, name):
        weight = tensors[name + ".weight"][2]
        return [[v / math.sqrt(dot(row, row) / len(row) + config["rms_norm_eps"]) * w for v, w in zip(row, weight, strict=True)] for row in x]

    def rotate(x, count):
        width = len(x[0]) // count
        out = []
        for position, row in enumerate(x):
            turned = []
            for head in range(count):
                h = row[head * width:(head + 1) * width]
                for i in range(width):
                    angle = position * config.get("rope_theta", 10000.0) ** (-2 * (i % (width // 2)) / width)
                    other = -h[i + width // 2] if i < width // 2 else h[i - width // 2]
                    turned.append(h[i] * math.cos(angle) + other * math.sin(angle))
            out.append(turned)
        return out

    def add(a, b):
        return [[x + y for x, y in zip(p, q, strict=True)] for p, q in zip(a, b, strict=True)]

    x = [rows(tensors["model.embed_tokens.weight"])[token] for token in inputs]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}."
        n = norm(x, name + "input_layernorm")
        queries, keys, values = (linear(n, f"{name}self_attn.{which}_proj") for which in "qkv")
        x = add(x, linear(attend(rotate(queries, heads), rotate(keys, kv_heads), values, heads, kv_heads), name + "self_attn.o_proj"))
        n = norm(x, name + "post_attention_layernorm")
        gate, up = linear(n, name + "mlp.gate_proj"), linear(n, name + "mlp.up_proj")
        inner = [[g / (1 + math.exp(-g)) * u for g, u in zip(a, b, strict=True)] for a, b in zip(gate, up, strict=True)]
        x = add(x, linear(inner, name + "mlp.down_proj"))
    return cross_entropy(norm(x, "model.norm"), rows(tensors["lm_head.weight"]), targets)
