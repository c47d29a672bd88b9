"""What can go wrong with a kernel on the CPU, as exceptions that say where and what usually mends it."""

from __future__ import annotations


class EmulatorError(RuntimeError):
    """Anything that the emulator cannot do, or that a kernel does wrong."""


class PlatformError(EmulatorError):
    """This system or processor cannot run the emulator."""


class CompilerNotFoundError(EmulatorError):
    """No C++ compiler was found."""


class CompileError(EmulatorError):
    """The C++ compiler rejected the kernel's text."""


class KernelFault(EmulatorError):
    """A kernel did something wrong.

    Attributes:
        array: name of the kernel's parameter or shared variable, or None.
        index: element of that array (of the flattened array, if it has several axes), or None.
        block, thread: ``blockIdx`` and ``threadIdx`` as tuples (x, y, z); None where the fault has none.
        file, line: place in the kernel's text, or None where only ``mode="check"`` can tell.
        hint: one sentence on what usually mends it.
    """

    def __init__(
        self,
        message: str,
        *,
        kernel: str,
        array: str | None = None,
        index: int | None = None,
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
        file: str | None = None,
        line: int | None = None,
        hint: str = "",
    ):
        super().__init__(message)
        self.kernel = kernel
        self.array = array
        self.index = index
        self.block = block
        self.thread = thread
        self.file = file
        self.line = line
        self.hint = hint


class OutOfBoundsError(KernelFault):
    """A read or write outside an array: global, shared or local."""


class MisalignedError(KernelFault):
    """A vector access at an address that is not a multiple of its size."""


class RaceError(KernelFault):
    """Two threads touch one element, at least one of them writing, and nothing orders them."""


class UninitialisedError(KernelFault):
    """A read of shared memory or of an output that nothing has written."""


class NeverWrittenError(KernelFault):
    """Elements of an output that no thread wrote."""


class DivergentBarrierError(KernelFault):
    """Threads wait at a barrier to which others never come."""


class InactiveLaneError(KernelFault):
    """A shuffle or another warp instruction that counts on a lane which does not take part."""


class LimitError(KernelFault):
    """A grid, a block or shared memory beyond what a GPU has."""


class DivisionByZeroError(KernelFault):
    """An integer divided by zero."""


class EndlessLoopError(KernelFault):
    """A thread that does not come to an end."""


class MemoryFaultError(KernelFault):
    """An access to memory that is not there, seen only by the processor."""


class AssertionFault(KernelFault):
    """A device-side ``assert`` or ``__trap()``."""


class ProfileLimitError(KernelFault):
    """More accesses between two barriers than a profile can hold."""
