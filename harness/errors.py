"""What stops a command: one sentence for the user, the next command to type, and the exit status.

What is merely absent is not an error but a gap in the evidence.
"""

EXIT_USAGE = 2
EXIT_COULD_NOT_LOOK = 3
EXIT_FAULT = 10
EXIT_INCONCLUSIVE = 11
EXIT_OUR_BUG = 70
EXIT_COULD_NOT_START = 125
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
EXIT_INTERRUPTED = 130


class HarnessError(Exception):
    """A failure the user can do something about; `hint` is the next command to type."""

    exit_code = EXIT_COULD_NOT_LOOK

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(HarnessError):
    exit_code = EXIT_USAGE


class CouldNotStart(HarnessError):
    """`run` could not start the command; the status is the one shells use for the same trouble."""

    def __init__(self, message: str, *, hint: str, exit_code: int = EXIT_COULD_NOT_START) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


class NotSupervised(CouldNotStart):
    """The machine refused what supervision needs. Nothing was started yet: the command can still run by itself."""


class NotOurs(HarnessError):
    """Another user could have written what would have been run."""


class BadCase(HarnessError):
    """A case directory that cannot be read."""


class Unreadable(ValueError):
    """What somebody else has written is not what it is said to be: torn, forged, too large. The sentence says what.

    No reader of such things raises anything else, but OSError where there was nothing to be read.
    """
