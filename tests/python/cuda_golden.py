"""Holds the CUDA operators to the golden cases: float32 within 1e-4, 16 bits by the twofold rule.

Run where there is a GPU:  python3 tests/python/cuda_golden.py path/to/libsape2_ops.so
"""

import sys

import torch

import golden


def arguments(tensors, metadata, dtype):
    """Leaves and keywords of sape2_attention for one case."""
    both = metadata["mode"].lower() == "qk"

    def parameter(name):
        if both:
            return torch.stack([tensors[name + "q"], tensors[name + "k"]])
        return tensors[name]

    leaves = {n: tensors[n].to("cuda", dtype) for n in ("q", "k", "v")}
    for name in ("ex", "ey"):
        leaves[name] = parameter(name).to("cuda", torch.float64 if dtype == torch.float64 else torch.float32)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    for name in ("gain", "gate_scale", "gate_offset"):
        value = tensors.get(name, torch.tensor(float(metadata[name]), dtype=torch.float64))
        leaves[name] = value.to("cuda", wide)
    for leaf in leaves.values():
        leaf.requires_grad_()
    settings = dict(
        prefix=int(metadata["P"]),
        mode=metadata["mode"].lower(),
        span=metadata["span"],
        form=metadata["form"],
        scale=float(metadata["scale"]),
        bias_inside=metadata["inside"] == "True",
    )
    return leaves, settings


def run(op, tensors, metadata, dtype):
    leaves, settings = arguments(tensors, metadata, dtype)
    out = op(leaves, int(metadata["H"]), int(metadata["W"]), settings)
    out.backward(tensors["dout"].to("cuda", dtype))
    results = {"out": out.detach().double()}
    results.update({"d" + n: leaf.grad.double() for n, leaf in leaves.items()})
    return results


def ours(leaves, rows, cols, s):
    return torch.ops.sape2.sape2_attention(
        leaves["q"], leaves["k"], leaves["v"], leaves["ex"], leaves["ey"], rows, cols,
        prefix=s["prefix"], mode=s["mode"], span=s["span"], form=s["form"], scale=s["scale"],
        gate_scale=leaves["gate_scale"], gate_offset=leaves["gate_offset"], gain=leaves["gain"],
        bias_inside=s["bias_inside"],
    )


def plain(leaves, rows, cols, s):
    """The formula in ordinary operations of the inputs' type."""
    q, k, v = leaves["q"], leaves["k"], leaves["v"]
    dtype, prefix = q.dtype, s["prefix"]
    head = lambda t, axes: (t if t.dim() == 0 else t.view(-1, *[1] * axes)).to(dtype)
    images, heads, tokens, size = q.shape
    grid = lambda t: t[:, :, prefix:].reshape(images, heads, rows, cols, size)

    def axis(a, table, turned):
        turn = lambda t: t.transpose(2, 3) if turned else t
        qq, kk, aa = turn(grid(q)), turn(grid(k)), turn(grid(a))
        gates = torch.sigmoid(head(leaves["gate_scale"], 3) * (qq @ kk.mT) + head(leaves["gate_offset"], 3))
        if s["span"] == "suffix":
            p, origin = gates.flip(-1).cumsum(-1).flip(-1), 0
        else:
            p = gates.triu(1).cumsum(-1) - gates.tril(-1).flip(-1).cumsum(-1).flip(-1)
            origin = table.shape[-2] // 2
        p = p.clamp(-origin, table.shape[-2] - 1 - origin)
        table = table.to(dtype)
        z = aa @ (table.unsqueeze(1) if table.dim() == 3 else table).mT
        low = p.detach().floor()
        row = lambda at: z.gather(-1, at.long() + origin)
        u = (p - low) * row(p.detach().ceil()) + (1 - p + low) * row(low)
        return turn(u).reshape(images, heads, rows * cols, -1)

    parts = {"q": ["q"], "k": ["k"], "qk": ["q", "k"]}[s["mode"]]
    bias = 0
    for index, part in enumerate(parts):
        table = lambda n: leaves[n][index] if len(parts) == 2 else leaves[n]
        ux, uy = axis(leaves[part], table("ex"), False), axis(leaves[part], table("ey"), True)
        if s["form"] == "distance":
            near = lambda u: torch.cdist(u.float(), u.float(), compute_mode="donot_use_mm_for_euclid_dist").to(dtype) if dtype != torch.float64 else torch.cdist(u, u, compute_mode="donot_use_mm_for_euclid_dist")
            bias = bias + near(ux) + near(uy)
        else:
            bias = bias + (ux.unsqueeze(3) + uy.unsqueeze(4)).flatten(3)
    bias = head(leaves["gain"], 2) * torch.nn.functional.pad(bias, (prefix, 0, prefix, 0))
    scores = q @ k.mT
    logits = s["scale"] * (scores + bias) if s["bias_inside"] else s["scale"] * scores + bias
    return logits.softmax(-1) @ v


def expected(tensors, metadata):
    both = metadata["mode"].lower() == "qk"
    names = {"out": "out", "dq": "dq", "dk": "dk", "dv": "dv"}
    result = {n: tensors[f].cuda() for n, f in names.items()}
    for n in ("dex", "dey"):
        result[n] = (torch.stack([tensors[n + "q"], tensors[n + "k"]]) if both else tensors[n]).cuda()
    for n in ("dgain", "dgate_scale", "dgate_offset"):
        if n in tensors:
            result[n] = tensors[n].cuda()
    return result


def run_cope(op, tensors, metadata, dtype):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    leaves = {n: tensors[n].to("cuda", wide if n == "e" else dtype) for n in ("q", "k", "v", "e")}
    for leaf in leaves.values():
        leaf.requires_grad_()
    out = op(*leaves.values(), float(metadata["scale"]))
    out.backward(tensors["dout"].to("cuda", dtype))
    results = {"out": out.detach().double()}
    results.update({"d" + n: leaf.grad.double() for n, leaf in leaves.items()})
    return results


def our_cope(q, k, v, e, scale):
    return torch.ops.sape2.cope_attention(q, k, v, e, scale=scale)


def plain_cope(q, k, v, e, scale):
    """The formula in ordinary operations of the inputs' type."""
    scores = scale * (q @ k.mT)
    positions = torch.sigmoid(scores).flip(-1).cumsum(-1).flip(-1).clamp(max=e.shape[0] - 1)
    z = q @ e.to(q.dtype).mT
    low = positions.detach().floor()
    bias = (positions - low) * z.gather(-1, positions.detach().ceil().long())
    bias = bias + (1 - positions + low) * z.gather(-1, low.long())
    return (scores + bias).softmax(-1) @ v


def expected_cope(tensors, metadata):
    return {n: tensors[n].cuda() for n in ("out", "dq", "dk", "dv", "de")}


def cases():
    """(name, tensors, metadata, how the case is run, our operator, the formula, what comes out)."""
    for case in golden.sape2_cases():
        yield *case, run, ours, plain, expected
    yield "cope", *golden.load(golden.FOLDER / "cope.safetensors"), run_cope, our_cope, plain_cope, expected_cope


def main():
    torch.ops.load_library(sys.argv[1])
    failures = 0
    for name, tensors, metadata, run, ours, plain, expected in cases():
        exact = expected(tensors, metadata)
        line = [f"{name:34}"]
        got = run(ours, tensors, metadata, torch.float32)
        again = run(ours, tensors, metadata, torch.float32)
        worst = max((got[n] - exact[n]).abs().max().item() / max(1, exact[n].abs().max().item()) for n in exact)
        same = all(torch.equal(got[n], again[n]) for n in exact)
        failures += not (worst <= 1e-4 and same)
        line.append(f"float32 {worst:.1e} {'same' if same else 'DIFFERS'}")
        for dtype in (torch.bfloat16, torch.float16):
            # Both start from rounded inputs; the exact answer to those is the float64 formula's.
            rounded = {n: t.to(dtype).double() if n in ("q", "k", "v", "dout") else t for n, t in tensors.items()}
            truth = run(plain, rounded, metadata, torch.float64)
            got, yardstick = run(ours, rounded, metadata, dtype), run(plain, rounded, metadata, dtype)
            ratios = {n: (got[n] - truth[n]).norm().item() / max((yardstick[n] - truth[n]).norm().item(), 1e-3 * truth[n].norm().item(), 1e-6) for n in exact}
            top = max(ratios, key=ratios.get)
            failures += not ratios[top] <= 2
            line.append(f"{str(dtype)[6:]} ×{ratios[top]:.2f} ({top})")
        print("  ".join(line), flush=True)
    print("all within bounds" if failures == 0 else f"{failures} out of bounds")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
