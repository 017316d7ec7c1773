"""Time and memory of one forward and backward pass on the GPU."""

import statistics

import torch


def _interval(run, repeats):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(repeats):
        run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / repeats


def eager_ms(step, repeats=10, rounds=7):
    """Median over rounds, called from Python as a training loop would."""
    for _ in range(3):
        step()
    return statistics.median(_interval(step, repeats) for _ in range(rounds))


def graph_ms(step, repeats=10, rounds=7):
    """The same captured in a CUDA graph: the device's time alone. None where it cannot be captured."""
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                step()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    graph.replay()
    return statistics.median(_interval(graph.replay, 1) for _ in range(rounds)) / repeats


def peak_mib(step):
    """Memory at its peak beyond what was there before."""
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def copy_ceiling():
    """TB/s of a large copy, read and written bytes counted."""
    a = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / eager_ms(lambda: b.copy_(a), 3, 5) / 1e9


def product_ceiling():
    """TFLOP/s of a large bfloat16 matrix product."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    return 2 * 8192**3 / eager_ms(lambda: a @ a, 5, 5) / 1e9
