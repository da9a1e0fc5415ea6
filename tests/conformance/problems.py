"""What users of other systems ask for or suffer, the criterion by which it is solved here, and where that is tested.

The numbers are those of the survey that the page `docs/problems.md` is made of. ``tests`` are `<file>::<name>`; a row
without any says why.
"""

from dataclasses import dataclass
from typing import Final

LINKS, NODES, PIPELINE = "routes and bridges (issue 5)", "broker nodes (issue 4)", "the pipeline (issue 6)"


@dataclass(frozen=True, slots=True)
class Problem:
    """One of them."""

    number: int
    seen_in: str
    problem: str
    criterion: str
    tests: tuple[str, ...] = ()
    why_not: str = ""


_BLOCKED, _OUTAGES, _PROCESSES = "sdk/test_blocked.py", "sdk/test_outages.py", "sdk/test_processes.py"
_P1, _P5, _P6, _P8 = (f"lua/test_{name}.py" for name in ("p1_no_overshoot", "p5_once", "p6_hand_over", "p8_rates"))

PROBLEMS: Final = (
    Problem(
        1,
        "ActiveMQ outage report",
        "producers hang and nothing says why",
        "every blocked wait has a cause; explain in < 50 ms",
        (
            f"{_BLOCKED}::test_a_timeout_tells_place_and_reason",
            "sdk/test_explain_causes.py::test_explain_names_the_right_cause_first",
        ),
    ),
    Problem(
        2,
        "activemq-users",
        "nobody knows which of the layered settings is in force",
        "the effective policy with the origin of each value, 30 layered configurations",
        ("policy/test_resolve.py::test_thirty_layered_policies",),
    ),
    Problem(
        3,
        "Pulsar 13538",
        "throttling looks like a network fault",
        "no session expires while throttled, the wait says so",
        (
            "sdk/test_rules.py::test_a_send_gives_up_when_the_rate_comes_too_late",
            "sdk/test_rules.py::test_stopped_by_hand_sends_wait_and_go_on_when_it_is_opened",
        ),
    ),
    Problem(
        4,
        "RabbitMQ Java client 187",
        "no event for short throttling",
        "blocked event after notify_after, with its unblocked one, at most one a second",
        ("sdk/test_on_blocked.py::test_a_wait_is_told_and_so_is_its_end",),
    ),
    Problem(
        5,
        "five RabbitMQ clients",
        "publish hangs for ever",
        "no call exceeds its timeout while Redis is paused",
        (
            f"{_OUTAGES}::test_every_call_ends_within_its_timeout_while_redis_is_away",
            f"{_OUTAGES}::test_calls_end_and_close_returns_while_redis_hangs",
            "sdk/test_gates.py::test_try_admit_takes_what_is_in_hand_and_makes_no_call",
        ),
    ),
    Problem(
        6,
        "pika 1257, 764",
        "close() hangs while blocked",
        "close() <= 1 s with 1,000 blocked sends and no Redis",
        (
            f"{_OUTAGES}::test_close_returns_with_a_thousand_blocked_sends_while_redis_is_away",
            f"{_BLOCKED}::test_close_is_not_flow_controlled",
        ),
    ),
    Problem(
        7,
        "RabbitMQ 23",
        "the health check is green while publishing is blocked",
        "readiness flips within 2 s",
        why_not=f"comes with {NODES}",
    ),
    Problem(
        8,
        "ARTEMIS-4569",
        "blocked producers pile up after they disconnected",
        "no waiter is left after the lease",
        (
            "lua/test_bounds.py::test_a_hundred_thousand_dead_cost_a_call_no_more_than_sixteen",
            f"{_BLOCKED}::test_a_timeout_leaves_nothing_behind",
            f"{_P6}::test_a_silent_waiter_does_not_hold_up_the_living",
        ),
    ),
    Problem(
        9,
        "ARTEMIS-2641, 5733",
        "no credit after a reconnection, or at balance exactly 0",
        "always a pending request or a positive balance",
        (
            "lua/test_stateful.py::test_the_scripts_do_what_the_model_does",
            f"{_OUTAGES}::test_after_redis_is_back_everything_goes_on_and_nothing_is_lost_or_doubled",
        ),
    ),
    Problem(
        10,
        "ARTEMIS-4453",
        "many destinations lose credit in flight",
        "5,000 destinations, one client, none stalls",
        ("conformance/test_problems.py::test_thousands_of_destinations_of_one_client",),
    ),
    Problem(
        11,
        "ARTEMIS-4141, NATS 7984",
        "expired or deleted messages keep credit",
        "every fate frees exactly once, random fates",
        ("sdk/test_expiry.py::test_every_fate_frees_once",),
    ),
    Problem(
        12,
        "RabbitMQ 0365986, ARTEMIS-5616",
        "credit granted or returned twice",
        "every call 1 to 3 times has the effect of once",
        (
            f"{_P5}::test_credit_given_back_again_frees_nothing_more",
            f"{_P5}::test_a_message_settled_twice_frees_once",
            "lua/test_stateful.py::test_the_scripts_do_what_the_model_does",
        ),
    ),
    Problem(
        13,
        "ARTEMIS-2057",
        "runaway grants",
        "repeated or reordered grants never raise the balance above the last one",
        (
            "sdk/test_lost_replies.py::test_credit_asked_for_over_a_bad_line_is_given_once",
            f"{_P5}::test_a_call_that_was_overtaken_takes_nothing_back",
        ),
    ),
    Problem(
        14,
        "RabbitMQ 17103",
        "a lying client is charged what it says",
        "charged what it sent, beyond its credit refused",
        (f"{_P1}::test_more_than_the_credit_held_is_not_published",),
    ),
    Problem(
        15,
        "NATS 8488",
        "stale state stalls consumers after a failover",
        "nobody idles beside a backlog",
        (
            f"{_OUTAGES}::test_after_an_empty_restart_the_limits_are_back_and_sending_goes_on",
            "lua/test_recovery.py::test_after_a_loss_of_everything_sessions_get_what_they_claim",
        ),
    ),
    Problem(
        16,
        "redisson 4462 and eight more",
        "permits are lost after kill -9",
        "half of 200 holders killed: all of their credit back, none of the living's touched",
        (f"{_PROCESSES}::test_half_of_two_hundred_holders_are_killed_and_exactly_their_credit_comes_back",),
    ),
    Problem(
        17,
        "Bottleneck 112, 115, 118",
        "state grows with dead clients, scripts vanish",
        "keys follow the living; SCRIPT FLUSH is not noticed",
        (
            f"{_OUTAGES}::test_a_storm_of_script_flushes_is_not_noticed",
            "lua/test_bounds.py::test_a_hundred_thousand_dead_cost_a_call_no_more_than_sixteen",
        ),
    ),
    Problem(
        18,
        "rate-limit-redis 251",
        "a replayed call counts twice",
        "lost replies: each call applied once",
        (
            "sdk/test_lost_replies.py::test_tokens_taken_over_a_bad_line_are_taken_once",
            "sdk/test_lost_replies.py::test_every_accepted_message_is_stored_exactly_once",
        ),
    ),
    Problem(
        19,
        "Artemis and RabbitMQ documents",
        "the limit is exceeded by what is in flight",
        "pending never above the limit, 64 producers",
        (
            "conformance/test_artemis.py::test_a12_never_above_the_limit_whatever_the_number_of_producers",
            f"{_P1}::test_a_grant_never_exceeds_the_room",
        ),
    ),
    Problem(
        20,
        "ARTEMIS-748, AMQ-4598",
        "counters drift",
        "recount equals the counters; injected drift is found and repaired",
        (
            "lua/test_stateful.py::test_the_scripts_do_what_the_model_does",
            "demo/test_cli.py::test_audit_finds_a_wrong_counter_and_repairs_it",
        ),
    ),
    Problem(
        21,
        "Pulsar 6975, 18699",
        "10 msg/s gave 160",
        "never above rate x T + burst over all clients",
        (
            "sdk/test_rules.py::test_all_senders_of_all_clients_share_the_rate_of_the_destination",
            "lua/test_p8_send_rates.py::test_no_window_stores_more_messages_than_rate_and_burst",
        ),
    ),
    Problem(
        22,
        "five limiters",
        "clocks of clients let tokens out twice",
        "Redis' clock is the only one",
        (
            f"{_P8}::test_no_window_admits_more_than_its_rate_and_burst",
            "lua/test_contract.py::test_no_script_uses_what_is_forbidden",
        ),
    ),
    Problem(
        23,
        "ulule/limiter 233",
        "a rate key without TTL locks for ever",
        "no key without TTL or owner",
        ("lua/test_p8_send_rates.py::test_a_clock_that_is_set_back_does_not_lock_the_rate",),
    ),
    Problem(
        24,
        "Gubernator 208",
        "no stated level of consistency",
        "exact everywhere; where a bound is given, it is tested",
        ("lua/test_rules.py::test_a_message_above_the_limit_goes_alone",),
    ),
    Problem(
        25,
        "NATS 5394, PIP-385",
        "one slow destination stalls the connection",
        "others of the same client go on",
        ("sdk/test_when_full.py::test_one_full_destination_does_not_hold_up_the_others",),
    ),
    Problem(
        26,
        "celery 2788",
        "one hoards, others idle; 0 means unlimited",
        "pull and shared windows; 0 is refused",
        (
            "sdk/test_names.py::test_nothing_is_spelled_zero",
            "conformance/test_artemis.py::test_a04_a_slow_consumer_with_a_buffer_keeps_what_a_fast_one_could_have_had",
        ),
    ),
    Problem(
        27,
        "Artemis memoryReleased()",
        "herds",
        "freed room wakes only those that it admits",
        (f"{_P6}::test_freed_room_wakes_only_those_that_it_admits",),
    ),
    Problem(
        28,
        "Spring Gateway 3780",
        "one key is hot",
        "<= 0.02 Redis calls a message",
        ("sdk/test_producer.py::test_a_kibibyte_message_costs_at_most_a_fiftieth_of_a_call",),
    ),
    Problem(
        29,
        "Solace 366",
        "credit bounds memory, not turns",
        "Jain >= 0.98 for equal weights, within 3 % of weights otherwise",
        (
            "lua/test_p7_fairness.py::test_equals_get_equal_shares",
            "lua/test_p7_fairness.py::test_weights_are_kept_within_three_percent",
            "lua/test_p7_fairness.py::test_shares_are_those_of_the_oracle",
        ),
    ),
    Problem(
        30,
        "spring-amqp 673, AMQ-4138",
        "a blocked producer cannot acknowledge",
        "acknowledgements never wait behind sends; the detector of deadlocks comes with routes and bridges",
        ("sdk/test_consumer.py::test_settling_goes_on_while_a_send_of_the_same_session_is_blocked",),
    ),
    Problem(
        31,
        "ARTEMIS-1710",
        "at the global limit nothing can be freed",
        "administration works in a full Redis and with full pools",
        (
            "lua/test_oom.py::test_an_operator_can_purge_change_repair_and_delete_in_a_full_redis",
            "sdk/test_pools.py::test_with_everything_full_administration_still_works",
        ),
    ),
    Problem(
        32,
        "RabbitMQ 05f0e03, Pulsar 15609",
        "blocked although the limit is gone",
        "the matrix of changes settles within 1 s",
        ("policy/test_live_matrix.py::test_the_change_matrix",),
    ),
    Problem(
        33,
        "redisson 2618",
        "a changed rate is ignored or resets tokens",
        "tokens' = min(tokens, burst'); the same again changes nothing",
        (
            "lua/test_p8_send_rates.py::test_a_changed_rate_keeps_what_is_left_and_the_same_rate_changes_nothing",
            f"{_P8}::test_tokens_left_or_owed_survive_a_change_of_rate",
        ),
    ),
    Problem(
        34,
        "NATS a173419",
        "shrinking below what is held goes wrong",
        "no new grants until below; never negative",
        (
            f"{_P1}::test_a_lowered_limit_grants_nothing_until_there_is_room_below_it",
            "sdk/test_consumer.py::test_a_window_lowered_below_what_is_held_delivers_nothing_until_enough_is_settled",
        ),
    ),
    Problem(
        35,
        "Pulsar 10603, Artemis 2401",
        "what no policy names is limited; each or shared is unclear",
        "unmatched is unlimited; both scopes on telemetry.#",
        ("policy/test_live_scopes.py::test_each_and_shared",),
    ),
    Problem(
        36,
        "Pulsar 27038",
        "tenants evade a limit by spreading",
        "1,000 topics stay within the tenant's limit",
        ("sdk/test_pools.py::test_a_tenant_with_many_topics_stays_within_its_limit",),
    ),
    Problem(
        37,
        "six libraries",
        "CROSSSLOT",
        "everything on a 3-master cluster; every key declared",
        ("lua/test_cluster.py::test_every_script_keeps_to_its_declared_keys_in_one_slot",),
    ),
    Problem(
        38,
        "Sentinel 2939",
        "silent fail-open without the coordinator",
        "declared: closed, or the last lease",
        (
            f"{_OUTAGES}::test_on_loss_closed_admits_nothing_once_redis_is_lost",
            f"{_OUTAGES}::test_on_loss_last_lease_spends_what_is_held_until_the_lease_ends_and_no_longer",
        ),
    ),
    Problem(
        39,
        "ARTEMIS-1011, AMQ-3733",
        "slow-consumer detection is wrong",
        "rate and demand: who had no work is never taken for slow",
        ("sdk/test_slow.py::test_who_has_no_work_is_not_slow",),
    ),
)
