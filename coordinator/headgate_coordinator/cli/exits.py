"""A command ends with an exit code, and with a line that says why.

0    done; what was checked holds
1    a check failed, or something that was asked for could not be done
2    wrong usage: an option, a URL, a name or a setting that cannot be used
3    Redis is unavailable, or refuses us
130  interrupted
"""

from typing import Final

from headgate import AccessDenied, CoordinatorUnavailable, HeadgateError, InvalidName, InvalidValue, PolicyError

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNAVAILABLE: Final = 3
INTERRUPTED: Final = 130


def exit_code(error: HeadgateError) -> int:
    """Return the exit code that stands for an error."""
    if isinstance(error, CoordinatorUnavailable | AccessDenied):
        return UNAVAILABLE
    if isinstance(error, InvalidName | InvalidValue | PolicyError):
        return USAGE
    return FAILED


def advice(error: HeadgateError) -> str:
    """Return what to do about an error that does not say so: nothing answers where the options look for Redis."""
    if not isinstance(error, CoordinatorUnavailable) or error.answered:
        return ""
    return "; see that it runs, that its URL is right (--redis or HEADGATE_URL), and that this host reaches it"


def one_line(error: BaseException) -> str:
    """Return what an error says, without line breaks."""
    return " | ".join(line.strip() for line in str(error).splitlines() if line.strip()) or type(error).__name__
