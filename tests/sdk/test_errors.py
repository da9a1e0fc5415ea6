"""The tree of errors is the one that is drawn, and the public names are those that are listed."""

import inspect
import re

import headgate
import headgate.sync
from headgate import errors


def drawn() -> dict[str, str]:
    text = errors.__doc__ or ""
    found, parent = {}, ""
    for line in re.findall(r"^[├└│].*── \w+|^[├└]── \w+", text, re.MULTILINE):
        name = line.split()[-1]
        found[name] = parent if line.startswith("│") else "HeadgateError"
        parent = parent if line.startswith("│") else name
    return found


def test_the_drawn_tree_is_the_real_one() -> None:
    real = {
        name: kind.__bases__[0].__name__
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, errors.HeadgateError) and kind is not errors.HeadgateError
    }
    assert drawn() == real


def test_what_is_also_a_built_in_error_is_said_to_be() -> None:
    text = errors.__doc__ or ""
    for name, builtin in re.findall(r"── (\w+) .*\(also an? (\w+)\)", text):
        assert issubclass(getattr(errors, name), getattr(__builtins__, builtin, None) or eval(builtin))
    for kind in (errors.CreditTimeout, errors.PolicyError, errors.InvalidName, errors.CoordinatorUnavailable):
        assert f"{kind.__name__}" in dict(re.findall(r"── (\w+) .*\(also an? (\w+)\)", text))


def test_every_error_is_public_and_explains_itself() -> None:
    for name in [*drawn(), "HeadgateError"]:
        assert name in headgate.__all__
        assert getattr(headgate, name).__doc__


def test_facts_are_attributes_and_in_the_text() -> None:
    error = errors.CreditTimeout("orders", 1.5, 100, place=3, reason="why not")
    assert (error.destination, error.waited, error.size, error.place, error.reason) == (
        "orders",
        1.5,
        100,
        3,
        "why not",
    )
    for fact in ("100 bytes", "'orders'", "1.5 s", "place 3", "why not"):
        assert fact in str(error)
    assert "9 bytes" in str(errors.DestinationFull("orders", 9))
    assert "whose limit is 5 bytes" in str(errors.MessageTooLarge("orders", 9, 5))
    assert "session s" in str(errors.SessionExpired("orders", "s", "gone"))


def test_the_public_names_are_all_there_is() -> None:
    public = {
        name for name, value in vars(headgate).items() if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public == set(headgate.__all__)
    assert headgate.__all__ == sorted(headgate.__all__)


def test_the_threads_have_the_same_methods() -> None:
    for name in ("Client", "Session", "Producer", "Consumer", "Gate", "Bucket", "Message", "Permit"):
        ours = {method for method in dir(getattr(headgate, name)) if not method.startswith("_")}
        theirs = {method for method in dir(getattr(headgate.sync, name)) if not method.startswith("_")}
        missing = ours - theirs
        assert missing <= ALONE, f"{name}: {missing}"


ALONE = {"store", "parts", "start", "settle", "credit_line", "lost_since", "close", "raw_id", "adopt", "consumers"} | {
    "put",
    "reason",
    "rates",
    "confirm",
    "is_confirming",
    "is_closed",
    "is_full",
    "seek",
    "hand_lock",
    "traces_receives",
    "is_busy",
    "queued",
    "ahead",
    *("attempt_turn", "keys", "refused", "take_turn", "try_turn", "wait"),
    "forked",
    "holding",
    "inflow",
    "room_at",
    "switch",
    *("is_of", "put_off", "given_back_id", "address", "durable", "pacing", "session", "subscription", "topics", "use"),
}
"""What only the async side has: for tools and brokers, or for its own use. A bucket closes with its session."""
