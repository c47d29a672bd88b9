"""The one exception that is written for people."""


class UserError(ValueError):
    """Something a person can repair: the message is one line that says what was given, what is needed, and how.

    The command line prints it without a traceback and exits with code 2. Everything else is a bug, and shows where.
    """
