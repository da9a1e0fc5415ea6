"""Numbers in messages are written for people, so never with an exponent."""


def rounded(value: float) -> str:
    """Return what was measured, with the three digits that count.

    >>> rounded(0.01234), rounded(2.0), rounded(3891.4), rounded(0.0000012), rounded(float("inf"))
    ('0.0123', '2', '3890', '0.0000012', 'inf')
    """
    return _without_exponent(f"{value:.3g}")


def plain(value: float) -> str:
    """Return what somebody set, with six digits that count, or as many as its whole part has.

    >>> plain(0.5), plain(100 / 60), plain(1_000_000.0), plain(12_345_678.0)
    ('0.5', '1.66667', '1000000', '12345678')
    """
    return _without_exponent(f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}")


def _without_exponent(text: str) -> str:
    return f"{float(text):.15f}".rstrip("0").rstrip(".") if "e" in text else text
