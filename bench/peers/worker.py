"""Measures peers on the GPU, job by job, in a process that run.py starts."""

import formulas
import jobs
import measure
import torch
from peers import PEERS


def prepare(library):
    torch.ops.load_library(library)


def inputs(shape, dtype, relative):
    images, heads, rows, cols, size = shape
    torch.manual_seed(0)
    tensor = lambda: torch.randn(images, heads, rows * cols, size, device="cuda").to(dtype).requires_grad_()
    longest = max(rows, cols)
    positions = 2 * longest - 1 if relative else longest + 1
    table = lambda: (0.02 * torch.randn(positions, size, device="cuda")).requires_grad_()
    leaves = [tensor(), tensor(), tensor(), table(), table()]
    if relative:
        leaves += [torch.full((heads,), start, device="cuda", requires_grad=True) for start in (size**-0.5, 2.0)]
    return leaves


def steps(peer, shape, dtype):
    """The peer's forward pass without gradients, and its forward and backward pass."""
    function = getattr(formulas, peer.function)
    if peer.compiled:
        function = torch.compile(function, dynamic=False)
    leaves = inputs(shape, dtype, peer.form == "direct")
    gradient = torch.randn_like(leaves[0])
    wanted = leaves[:3] if peer.form == "none" else leaves

    def forward():
        with torch.no_grad():
            return function(*leaves, shape[2], shape[3])

    def both():
        return torch.autograd.grad(function(*leaves, shape[2], shape[3]), wanted, gradient)

    return forward, both


compiled_steps = {}  # by job, so that what was compiled ahead is measured by the same process


def steps_of(job):
    peer, key = PEERS[job["peer"]], (job["peer"], tuple(job["shape"]), job["dtype"])
    if key in compiled_steps:
        return compiled_steps[key]
    made = steps(peer, job["shape"], getattr(torch, job["dtype"]))
    if peer.compiled:
        compiled_steps[key] = made
    return made


def figures(step):
    result = {"ms": measure.python_ms(step), "mib": measure.peak_mib(step)}
    result["graph_ms"] = measure.graph_ms(step)
    return result


def attempt(backward):
    """A peer whose backward pass fails still has a forward pass."""
    try:
        return backward()
    except Exception as error:
        return jobs.failure(error)


def work(job):
    if job["what"] == "ceilings":
        props = torch.cuda.get_device_properties(0)
        return {"gpu": props.name, "torch": torch.__version__, **measure.ceilings()}
    torch.cuda.empty_cache()
    peer = PEERS[job["peer"]]
    forward, both = steps_of(job)
    if job["what"] == "compile":
        forward()
        if peer.backward:
            attempt(both)
        torch.cuda.empty_cache()
        return {}
    result = {"forward": figures(forward)}
    if peer.backward:
        result["both"] = attempt(lambda: figures(both))
    return result
