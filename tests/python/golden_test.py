"""Holds the CUDA operators to the golden cases: float32 within 1e-4, 16 bits by the twofold rule.

Run where there is a GPU:  python3 tests/python/golden_test.py path/to/libsape2_ops.so
"""

import sys

import torch

import golden
import plain_formula


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
    names = ("q", "k", "v", "ex", "ey")
    numbers = {n: leaves[n] for n in ("gate_scale", "gate_offset", "gain")}
    return plain_formula.sape2_attention(*(leaves[n] for n in names), rows, cols, **s, **numbers)


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
    if not torch.cuda.is_available():
        print("skipped: there is no GPU here")
        return 0
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
