"""What a GPU of compute capability 9.0 can launch."""

from __future__ import annotations

from .declarations import Kernel
from .errors import LimitError

MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_SHARED = 227 * 1024


def check_limits(
    kernel: Kernel, name: str, grid: tuple[int, int, int], block: tuple[int, int, int], shared_mem: int
) -> None:
    """Refuse a launch that no GPU would accept.

    Raises:
        LimitError: naming the limit and what was asked for.
    """

    def refuse(message: str, hint: str) -> None:
        raise LimitError(f"{name}: {message} {hint}", kernel=name, hint=hint)

    threads = block[0] * block[1] * block[2]
    if min(*grid, *block) < 1:
        refuse(
            f"every size of grid {grid} and block {block} must be at least 1.",
            "Check how they are computed from the array's size.",
        )
    for what, sizes, limits in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
        for axis, size, limit in zip("xyz", sizes, limits, strict=True):
            if size > limit:
                refuse(
                    f"{what} {sizes} has {size} along {axis}; a GPU takes at most {limit}.",
                    "Put the long axis on x.",
                )
    if threads > MAX_THREADS:
        refuse(
            f"block {block} has {threads} threads; a GPU takes at most {MAX_THREADS}.",
            "Use a smaller block and more blocks.",
        )
    if kernel.max_threads is not None and threads > kernel.max_threads:
        refuse(
            f"block {block} has {threads} threads; the __launch_bounds__ allow {kernel.max_threads}.",
            "Use a smaller block, or raise the bounds.",
        )
    if not 0 <= shared_mem <= MAX_SHARED:
        refuse(
            f"shared_mem is {shared_mem} bytes; a block has at most {MAX_SHARED} (227 KiB).",
            "Work on a smaller tile at a time.",
        )
