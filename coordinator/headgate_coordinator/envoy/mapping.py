"""The mapping from descriptors of proxies to limiters, as the policy has it."""

from collections.abc import Iterable, Sequence

from headgate.core.limits.descriptor import Descriptor

Entries = Sequence[tuple[str, str]]


class DescriptorRules:
    """`DescriptorRules` finds the rule of a descriptor.

    Of those with its domain and keys it is the most specific whose values the descriptor has.

    Args:
        rules: of the policy.
    """

    def __init__(self, rules: Iterable[Descriptor] = ()) -> None:
        self._by_keys: dict[tuple[str, tuple[str, ...]], list[Descriptor]] = {}
        for rule in sorted(rules, key=lambda rule: rule.order):
            self._by_keys.setdefault((rule.domain, rule.keys), []).append(rule)

    def of(self, domain: str, entries: Entries) -> Descriptor | None:
        """Return the rule of a descriptor; None where none is for it."""
        rules = self._by_keys.get((domain, tuple(key for key, _ in entries)))
        if rules is None:
            return None
        values = dict(entries)
        return next((rule for rule in rules if rule.fits(values)), None)
