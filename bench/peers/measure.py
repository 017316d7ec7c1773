"""Time and memory of repeated work on the GPU."""

import statistics

import torch

INTERVAL_MS = 6  # what one timed interval should last: long against an event, short enough for many
ROUNDS = 9


def _interval(run, repeats):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / repeats


def _repeats(run):
    run()
    return max(1, min(100, round(INTERVAL_MS / max(_interval(run, 2), 1e-3))))


def python_ms(step):
    """Median over rounds, called from Python as a training loop would."""
    for _ in range(3):
        step()
    repeats = _repeats(step)
    return statistics.median(_interval(step, repeats) for _ in range(ROUNDS))


def graph_ms(step):
    """The same captured in a CUDA graph: the device's time alone. None where it cannot be captured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    repeats = max(1, _repeats(step) // 2)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                step()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    graph.replay()
    return statistics.median(_interval(graph.replay, 1) for _ in range(ROUNDS)) / repeats


def peak_mib(step):
    """Memory at its peak beyond what was there before."""
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def ceilings():
    """TB/s of a large copy, read and written bytes counted, and TFLOP/s of a large bfloat16 product."""
    a = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    copy = 2 * a.numel() / python_ms(lambda: b.copy_(a)) / 1e9
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    return {"copy": copy, "product": 2 * 8192**3 / python_ms(lambda: a @ a) / 1e9}
