"""What a chapter imports: `from llmlab.book.chapter import check, figure, show, table`.

    check       tries the reader's function, not ours, and says which case fails
    figure      axes in the book's style: legible on light and dark pages and for colour-blind readers
    show        the source of a function of the package, as it is shipped
    show_cuda   the same for kernels
    table       rows under headings
"""

from llmlab.book.chapter.answers import check
from llmlab.book.chapter.figures import COLOURS, figure
from llmlab.book.chapter.listing import show, show_cuda
from llmlab.book.chapter.tables import table

__all__ = ["COLOURS", "check", "figure", "show", "show_cuda", "table"]
