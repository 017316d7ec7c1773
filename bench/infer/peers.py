#!/usr/bin/env python3
"""A competitor of the runtime: answers `sape2 bench infer --peers 'PYTHON bench/infer/peers.py'`.

usage: peers.py PEER MODEL.safetensors MODEL.onnx EXPECTED.safetensors THREADS

PEER is one of
  onnxruntime   the model as `sape2 export` writes it, on the CPU
  sdpa          PyTorch: the model in ordinary operations, scaled_dot_product_attention with the bias as its mask
  compile       the same through torch.compile

EXPECTED has `images`, normalised, and the `logits` that the runtime gives for them. The worker prints one line of JSON when
it is ready; then, for every line `BATCH CALLS` on standard input, one with the milliseconds of each call.
"""

import json
import os
import sys
import time

START = time.perf_counter()


def tensors_of(path):
    """A safetensors file as NumPy arrays in float32, and its metadata."""
    import numpy as np

    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(data[begin:end], np.uint16).astype(np.uint32) << 16
            values = bits.view(np.float32)
        else:
            values = np.frombuffer(data[begin:end], {"F32": np.float32}[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors, metadata


def folder_bytes(module):
    """What a package takes on disk, the libraries that pip puts beside it included."""
    folder = os.path.dirname(module.__file__)
    folders = [folder] + [path for path in (folder + ".libs",) if os.path.isdir(path)]
    return sum(os.path.getsize(os.path.join(where, name))
               for one in folders for where, _, names in os.walk(one) for name in names
               if os.path.isfile(os.path.join(where, name)))


def onnxruntime_peer(model, onnx, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.force_spinning_stop", "1")  # others compute in between
    session = onnxruntime.InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
    run = lambda images: session.run(["logits"], {"images": images})[0]
    return run, f"onnxruntime {onnxruntime.__version__}", folder_bytes(onnxruntime)


def torch_peer(model, threads, compiled):
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    arrays, metadata = tensors_of(model)
    config = json.loads(metadata["sape2_config"])
    vit, encoding = config["vit"], config["encoding"]
    if encoding not in ("sape2-rel-k", "ape", "none") or vit["pooling"] != "mean" or vit.get("layer_scale") is not None:
        sys.exit(f"peers.py: the PyTorch peers know sape2-rel-k, ape and none with mean pooling, not {encoding}")
    t = {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    both = lambda name: (t[name + ".weight"], t[name + ".bias"])
    linear = lambda x, name: F.linear(x, *both(name))
    norm = lambda x, name: F.layer_norm(x, x.shape[-1:], *both(name), eps=1e-6)

    def axis_vectors(q, k, table, scale, offset):  # (…, n, d): one row or column
        gates = torch.sigmoid(scale * (q @ k.mT) + offset)
        position = gates.triu(1).cumsum(-1) - gates.tril(-1).flip(-1).cumsum(-1).flip(-1) + len(table) // 2
        position = position.clamp(0, len(table) - 1)
        values, low = k @ table.T, position.floor()
        return torch.lerp(values.gather(-1, low.long()), values.gather(-1, position.ceil().long()), position - low)

    def bias_of(q, k, own, rows, cols):
        scale = t[own + "gate_alpha"].view(-1, 1, 1, 1) * q.shape[-1] ** -0.5
        offset = t[own + "gate_beta"].view(-1, 1, 1, 1)
        along_x = [x.unflatten(2, (rows, cols)) for x in (q, k)]
        along_y = [x.transpose(2, 3) for x in along_x]
        ux = axis_vectors(*along_x, t[own + "ex"], scale, offset)
        uy = axis_vectors(*along_y, t[own + "ey"], scale, offset).transpose(2, 3)
        return (uy.unsqueeze(-1) + ux.unsqueeze(-2)).flatten(4).flatten(2, 3)

    def forward(images):
        x = F.conv2d(images, *both("patch_embed.proj"), stride=vit["patch_size"])
        rows, cols = x.shape[2:]
        x = x.flatten(2).transpose(1, 2)
        if "pos_embed" in t:
            x = x + t["pos_embed"]
        for layer in range(vit["depth"]):
            block = f"blocks.{layer}."
            qkv = linear(norm(x, block + "norm1"), block + "attn.qkv")
            q, k, v = qkv.unflatten(2, (3, vit["heads"], -1)).permute(2, 0, 3, 1, 4)
            bias = bias_of(q, k, block + "attn.pos.", rows, cols) if encoding == "sape2-rel-k" else None
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)
            x = x + linear(out, block + "attn.proj")
            x = x + linear(F.gelu(linear(norm(x, block + "norm2"), block + "mlp.fc1")), block + "mlp.fc2")
        return linear(norm(x.mean(1), "fc_norm"), "head")

    if compiled:
        forward = torch.compile(forward, dynamic=False)

    def run(images):
        with torch.inference_mode():
            return forward(torch.from_numpy(images)).numpy()

    name = f"PyTorch {torch.__version__} " + ("torch.compile" if compiled else "SDPA")
    return run, name, folder_bytes(torch)


def peak_bytes():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM"))


def main():
    import numpy as np

    peer, model, onnx, expected, threads = sys.argv[1:]
    given, _ = tensors_of(expected)
    images, logits = (np.array(given[name], np.float32) for name in ("images", "logits"))
    if peer == "onnxruntime":
        run, name, size = onnxruntime_peer(model, onnx, int(threads))
    else:
        run, name, size = torch_peer(model, int(threads), peer == "compile")
    first = run(images[:1])
    started, peak = 1000 * (time.perf_counter() - START), peak_bytes()
    difference = max(np.abs(first - logits[:1]).max(), np.abs(run(images) - logits).max())
    print(json.dumps({"name": name, "bytes_on_disk": size, "start_ms": started, "peak_bytes": peak,
                      "difference": float(difference)}), flush=True)
    warm = set()
    for line in sys.stdin:
        batch, calls = map(int, line.split())
        pixels = np.resize(images, (batch, *images.shape[1:]))
        if batch not in warm:
            run(pixels)
            warm.add(batch)
        times = []
        for _ in range(calls):
            begin = time.perf_counter()
            run(pixels)
            times.append(1000 * (time.perf_counter() - begin))
        print(json.dumps({"ms": times}), flush=True)


main()
