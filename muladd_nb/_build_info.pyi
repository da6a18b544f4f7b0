# The types of _build_info.py, which Meson writes.
VERSION: str
COMPILER: str
TORCH_BUILT_WITH: str
TORCH_TARGET: str
CUDA_VERSION: str
CUDA_ARCHITECTURES: str
