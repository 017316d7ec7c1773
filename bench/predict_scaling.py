"""What a step of data-parallel training should take on 1 to 64 GPUs: the model of docs/distributed.md.

usage: predict_scaling.py [--parameters N] [--forward MS] [--backward MS] [--rest MS] [--machine-gpus N]
                          [--inside GB/S] [--between GB/S] [--latency US] [--buckets N]
The defaults are vit-small with sape2-rel-k, 128 images a GPU, measured on one H200 (results/training-h200.md).
"""

import argparse


def exposed(gpus, options):
    """Milliseconds of a step in which the GPU waits for sums."""
    if gpus == 1:
        return 0.0
    bandwidth = options.inside if gpus <= options.machine_gpus else options.between  # the slowest link of the ring
    sent = 2 * (gpus - 1) / gpus * 4 * options.parameters / options.buckets  # bytes of a bucket, by each GPU
    bucket = sent / (bandwidth * 1e6) + 2 * (gpus - 1) * options.latency / 1000
    # Bucket i is full after share (i + 1) / buckets of the backward pass, and goes once the one before it has gone.
    gone = 0.0
    for number in range(1, options.buckets + 1):
        gone = max(gone, options.backward * number / options.buckets) + bucket
    return gone - options.backward


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parameters", type=float, default=21.3e6)
    parser.add_argument("--forward", type=float, default=1.41, help="ms")
    parser.add_argument("--backward", type=float, default=2.69, help="ms")
    parser.add_argument("--rest", type=float, default=0.26, help="ms: batch and optimiser, as far as not hidden")
    parser.add_argument("--machine-gpus", type=int, default=8)
    parser.add_argument("--inside", type=float, default=300, help="GB/s a GPU within a machine (NVLink)")
    parser.add_argument("--between", type=float, default=40, help="GB/s a GPU between machines")
    parser.add_argument("--latency", type=float, default=3, help="us of one of the 2 (n - 1) turns of a ring")
    parser.add_argument("--buckets", type=int, default=8)
    options = parser.parse_args()
    alone = options.forward + options.backward + options.rest
    print("| GPUs | sent by each, MB | exposed ms | step ms | efficiency |\n|---|---|---|---|---|")
    for gpus in (1, 2, 4, 8, 16, 32, 64):
        waiting = exposed(gpus, options)
        sent = 2 * (gpus - 1) / gpus * 4 * options.parameters / 1e6
        step = alone + waiting
        print(f"| {gpus} | {sent:.0f} | {waiting:.2f} | {step:.2f} | {100 * alone / step:.0f} % |")


if __name__ == "__main__":
    main()
