"""What the build writes into `_build.py`."""

VERSION: str
TORCH_VERSION: str
CUDA_VERSION: str
CUDA_KERNELS: bool
