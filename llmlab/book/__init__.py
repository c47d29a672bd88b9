"""The book: read its table of contents, run its chapters, prove that they are true, build its pages.

    toc       book.toml, read and validated
    pair      a chapter's two files, the .md source and the executed .ipynb
    run       executes the .md into the .ipynb, the same bytes each time
    widget_state  the widgets that a notebook holds
    check     proves the pair: same content, executed, no errors, shown code is shipped, outputs are true
    pages     what Sphinx needs to know
    build     the HTML pages, which ask no other host for anything
    lab       JupyterLab, set up for the book
    cli       the commands
    chapter/  what a chapter imports: figures, tables, listings, checks of the reader's answers
"""
