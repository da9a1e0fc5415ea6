"""Mutants of quotas of users; see :mod:`tests.lua.mutants`. Those of what users make are among those of links."""

from typing import Final

_QUOTAS = "test_user_quotas"
_AT_ONCE = f"{_QUOTAS}::test_each_user_has_so_many_at_once_and_those_that_go_make_room"
_TOGETHER = f"{_QUOTAS}::test_users_together_share_what_they_have_at_once"
_RATES = f"{_QUOTAS}::test_what_each_user_sends_is_charged_to_it_alone"
_CLAIMED = f"{_QUOTAS}::test_what_is_claimed_after_a_loss_is_held_and_its_rates_are_not_paid_again"

USER_QUOTAS: Final = (
    ("P1", "lib/taking", "(levels.held[limit.name] or 0) + amount > math.min", "0 > math.min", _AT_ONCE),
    ("P1", "lib/holding", "math.max(0, (k.levels.held[name] or 0) + number)", "0", _AT_ONCE),
    ("P2", "lib/holding", "      add_held(k, amount[1], -amount[3] * times)\n", "", _AT_ONCE),
    ("P1", "lib/holding", "return k.forms[name], k.levels", "return k.forms[name], limiter.levels", _AT_ONCE),
    ("P1", "lib/holding", "math.max(0, (limiter.levels.held[name] or 0) + number)", "0", _TOGETHER),
    ("P8", "lib/taking", "amount, limit.rate) - tolerance - now_us)", "0, limit.rate) - tolerance - now_us)", _RATES),
    ("P8", "lib/taking", "amount, limit.rate) - tolerance - now_us)", "amount, limit.rate) - now_us)", _RATES),
    ("P8", "lib/holding", "return k.forms[name], k.levels", "return k.forms[name], limiter.levels", _RATES),
    ("P3", "lib/admitting", "take_amounts(key, amounts, 1, true)", "take_amounts(key, amounts, 1)", _CLAIMED),
    ("P3", "lib/admitting", "take_amounts(key, amounts, 1, true)", "", _CLAIMED),
    ("P3", "lib/taking", "now_ms < d.learning_until and limit.most < MOST_COUNTED", "false", _CLAIMED),
)  # fmt: skip
