"""What users of other systems ask for or suffer, the criterion by which it is solved here, and the tests of that.

The numbers are those of the survey that the page `docs/problems.md` is made of. ``rest`` is what of the criterion
no test shows, and why.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Problem:
    """One of them."""

    number: int
    seen_in: str
    problem: str
    criterion: str
    rest: str = ""


PROBLEMS: Final = (
    Problem(
        1,
        "ActiveMQ outage report",
        "producers hang and nothing says why",
        "every blocked wait has a cause; explain costs two calls, < 50 ms",
        "the 50 ms are measured by `make bench`, and an hour of soak is not run",
    ),
    Problem(
        2,
        "activemq-users",
        "nobody knows which of the layered settings is in force",
        "the effective policy with the origin of each value, 30 layered configurations",
    ),
    Problem(
        3,
        "Pulsar 13538",
        "throttling looks like a network fault",
        "no session expires while throttled, the wait says so",
        "three leases long instead of ten minutes",
    ),
    Problem(
        4,
        "RabbitMQ Java client 187",
        "no event for short throttling",
        "blocked event after notify_after, with its unblocked one, at most one a second",
    ),
    Problem(5, "five RabbitMQ clients", "publish hangs for ever", "no call exceeds its timeout while Redis is paused"),
    Problem(6, "pika 1257, 764", "close() hangs while blocked", "close() <= 1 s with 1,000 blocked sends and no Redis"),
    Problem(
        7,
        "RabbitMQ 23",
        "the health check is green while publishing is blocked",
        "readiness flips within 2 s",
        "readiness is that of a node and its Redis; metrics, alerts and `explain` tell of a full destination",
    ),
    Problem(
        8,
        "ARTEMIS-4569",
        "blocked producers pile up after they disconnected",
        "no waiter is left after the lease",
        "two thousand waiters instead of ten",
    ),
    Problem(
        9,
        "ARTEMIS-2641, 5733",
        "no credit after a reconnection, or at balance exactly 0",
        "always a pending request or a positive balance",
    ),
    Problem(
        10,
        "ARTEMIS-4453",
        "many destinations lose credit in flight",
        "thousands of destinations, one client, none stalls",
        "a thousand destinations instead of five, a quarter of them in `make test`",
    ),
    Problem(
        11,
        "ARTEMIS-4141, NATS 7984",
        "expired or deleted messages keep credit",
        "every fate frees exactly once, random fates",
    ),
    Problem(
        12,
        "RabbitMQ 0365986, ARTEMIS-5616",
        "credit granted or returned twice",
        "every call 1 to 3 times has the effect of once",
    ),
    Problem(
        13, "ARTEMIS-2057", "runaway grants", "repeated or reordered grants never raise the balance above the last one"
    ),
    Problem(
        14,
        "RabbitMQ 17103",
        "a lying client is charged what it says",
        "charged what it sent; beyond its credit refused",
        "nothing is declared: the script measures what it is given, so there is no lie to flag",
    ),
    Problem(
        15,
        "NATS 8488",
        "stale state stalls consumers after a failover",
        "nobody idles beside a backlog after Redis failed",
        "there is no leader but Redis: nodes hold no state",
    ),
    Problem(
        16,
        "redisson 4462 and eight more",
        "permits are lost after kill -9",
        "half of 200 holders killed: all of their credit back, none of the living's touched",
    ),
    Problem(
        17,
        "Bottleneck 112, 115, 118",
        "state grows with dead clients, scripts vanish",
        "keys follow the living; SCRIPT FLUSH is not noticed",
    ),
    Problem(18, "rate-limit-redis 251", "a replayed call counts twice", "lost replies: each call applied once"),
    Problem(
        19,
        "Artemis and RabbitMQ documents",
        "the limit is exceeded by what is in flight",
        "64 producers: no entry of the ledger shows more than the limit",
        "eight clients on one machine instead of sixteen hosts",
    ),
    Problem(
        20,
        "ARTEMIS-748, AMQ-4598",
        "counters drift",
        "recount equals the counters; injected drift is found and repaired",
        "on request, with `headgate audit --repair`: nothing repairs by itself",
    ),
    Problem(
        21,
        "Pulsar 6975, 18699",
        "10 msg/s gave 160",
        "never above rate x T + burst over all clients",
        "two clients instead of fifty hosts; that little less than the rate passes is not asserted",
    ),
    Problem(
        22,
        "five limiters",
        "clocks of clients let tokens out twice",
        "clocks 30 s off admit nobody more; µs of 0, 45, 5123 and 999999",
    ),
    Problem(
        23, "ulule/limiter 233", "a rate key without TTL locks for ever", "a scan shows no key without TTL or owner"
    ),
    Problem(
        24,
        "Gubernator 208",
        "no stated level of consistency",
        "exact everywhere; where a bound is given, it is tested",
        "there is one level, exact, so a policy has none to declare",
    ),
    Problem(
        25,
        "NATS 5394, PIP-385",
        "one slow destination stalls the connection",
        "nine others of the same client send the same in as many calls",
    ),
    Problem(
        26,
        "celery 2788",
        "one hoards, others idle; 0 means unlimited",
        "one slow and three fast consumers share the work; 0 is refused",
    ),
    Problem(27, "Artemis memoryReleased()", "herds", "freed room wakes only those that it admits"),
    Problem(
        28,
        "Spring Gateway 3780",
        "one key is hot",
        "<= 0.02 Redis calls a message",
        "200,000 messages a second over eight clients need the cores; `make bench` measures it",
    ),
    Problem(
        29,
        "Solace 366",
        "credit bounds memory, not turns",
        "Jain >= 0.98 for equal weights, within 3 % of weights otherwise",
    ),
    Problem(
        30,
        "spring-amqp 673, AMQ-4138",
        "a blocked producer cannot acknowledge",
        "acknowledgements never wait behind sends; deadlocks are detected, over bridges too",
    ),
    Problem(
        31,
        "ARTEMIS-1710",
        "at the global limit nothing can be freed",
        "administration works in a full Redis and with full pools",
    ),
    Problem(
        32,
        "RabbitMQ 05f0e03, Pulsar 15609",
        "blocked although the limit is gone",
        "the matrix of changes, blocked and free: everything settles within a poll",
    ),
    Problem(
        33,
        "redisson 2618",
        "a changed rate is ignored or resets tokens",
        "tokens' = min(tokens, burst'); the same again changes nothing",
    ),
    Problem(34, "NATS a173419", "shrinking below what is held goes wrong", "no new grants until below; never negative"),
    Problem(
        35,
        "Pulsar 10603, Artemis 2401",
        "what no policy names is limited; each or shared is unclear",
        "unmatched is unlimited; both scopes on telemetry.#",
    ),
    Problem(
        36,
        "Pulsar 27038",
        "tenants evade a limit by spreading",
        "a tenant's topics stay within the tenant's limit",
        "120 topics over three masters instead of a thousand",
    ),
    Problem(
        37,
        "six libraries",
        "CROSSSLOT",
        "on a 3-master cluster; every key declared, one slot a decision",
        "not every test runs on the cluster: what a slot could matter to does",
    ),
    Problem(
        38,
        "Sentinel 2939",
        "silent fail-open without the coordinator",
        "declared: closed, or the last lease",
        "a capacity of each host without Redis is not offered: the hosts together could exceed the limit",
    ),
    Problem(
        39,
        "ARTEMIS-1011, AMQ-3733",
        "slow-consumer detection is wrong",
        "rate and demand: who had no work is never taken for slow",
    ),
)

TESTS: Final = """
01 sdk/explain/test_explain_causes.py::test_explain_names_the_cause_first
01 sdk/credit/test_rules.py::test_who_waits_for_the_rate_is_told_why
02 policy/documents/test_layers.py::test_layers_add_up_as_the_text_reads
02 policy/test_commands.py::test_show_effective_tells_defaults_too
03 sdk/credit/test_rules.py::test_a_send_gives_up_when_the_rate_comes_too_late
03 sdk/credit/test_rules.py::test_stopped_by_hand_sends_wait_and_go_on_when_it_is_opened
04 sdk/credit/test_on_blocked.py::test_a_wait_is_told_with_its_reason_and_its_end
04 sdk/credit/test_on_blocked.py::test_short_waits_are_told_at_most_once_a_second
05 sdk/session/test_outages.py::test_every_call_ends_within_its_timeout_while_redis_is_away
05 sdk/test_sync.py::test_calls_end_and_close_returns_while_redis_hangs
05 sdk/test_sync.py::test_try_admit_takes_what_is_in_hand_and_makes_no_call
06 sdk/session/test_outages.py::test_close_returns_with_a_thousand_blocked_sends_while_redis_is_away
06 sdk/session/test_outages.py::test_close_is_not_flow_controlled
07 admin/test_metrics.py::test_without_redis_all_is_answered_in_time_and_comes_back
08 lua/contracts/test_bounds.py::test_a_hundred_thousand_dead_cost_a_call_no_more_than_sixteen
08 lua/promises/test_p6_hand_over.py::test_a_silent_waiter_does_not_hold_up_the_living
09 lua/promises/test_stateful.py::test_the_scripts_do_what_the_model_does
09 sdk/session/test_outages.py::test_after_redis_is_back_everything_goes_on_and_nothing_is_lost_or_doubled
11 lua/destinations/test_expiry.py::test_all_is_freed_once_whatever_happens
11 sdk/consuming/test_dead_letters.py::test_a_crash_between_the_two_leaves_one
11 lua/promises/test_p2_conservation.py::test_purging_frees_everything_but_credit
12 lua/promises/test_p5_once.py::test_credit_given_back_again_frees_nothing_more
12 lua/promises/test_p2_conservation.py::test_a_message_settled_twice_frees_once
12 lua/promises/test_stateful.py::test_the_scripts_do_what_the_model_does
13 sdk/session/test_lost_replies.py::test_credit_asked_for_over_a_bad_line_is_given_once
13 lua/promises/test_p5_once.py::test_a_call_that_was_overtaken_takes_nothing_back
14 lua/promises/test_p1_no_overshoot.py::test_more_than_the_credit_held_is_not_published
14 conformance/test_artemis.py::test_a19_what_a_client_sends_beyond_its_credit_is_refused
15 sdk/session/test_outages.py::test_after_redis_is_back_everything_goes_on_and_nothing_is_lost_or_doubled
15 sdk/session/test_outages.py::test_after_an_empty_restart_the_limits_are_back_and_sending_goes_on
15 lua/promises/test_recovery.py::test_after_a_loss_of_everything_sessions_get_what_they_claim
16 sdk/session/test_processes.py::test_half_of_two_hundred_holders_are_killed_and_exactly_their_credit_comes_back
17 sdk/session/test_outages.py::test_a_storm_of_script_flushes_is_not_noticed
17 lua/contracts/test_bounds.py::test_a_hundred_thousand_dead_cost_a_call_no_more_than_sixteen
18 sdk/session/test_lost_replies.py::test_tokens_taken_over_a_bad_line_are_taken_once
18 sdk/session/test_lost_replies.py::test_every_accepted_message_is_stored_exactly_once
19 conformance/test_artemis.py::test_a12_many_producers_do_not_exceed_the_limit_by_their_windows
19 lua/promises/test_p1_no_overshoot.py::test_a_grant_never_exceeds_the_room
20 lua/promises/test_stateful.py::test_the_scripts_do_what_the_model_does
20 demo/test_cli.py::test_audit_finds_a_wrong_counter_and_repairs_it
21 sdk/credit/test_rules.py::test_all_senders_of_all_clients_share_the_rate_of_the_destination
21 lua/promises/test_p8_send_rates.py::test_no_window_stores_more_messages_than_rate_and_burst
22 lua/promises/test_p8_rates.py::test_microseconds_are_a_number_and_not_digits
22 sdk/limiting/test_bucket.py::test_wrong_clocks_of_hosts_admit_nobody_more
22 lua/contracts/test_contract.py::test_no_script_uses_what_is_forbidden
23 lua/promises/test_p8_send_rates.py::test_a_clock_that_is_set_back_does_not_lock_the_rate
24 lua/destinations/test_rules.py::test_a_message_above_the_limit_goes_alone
24 lua/destinations/test_rules.py::test_whose_clients_count_messages_goes_up_to_the_hard_limit
24 sdk/consuming/test_consumer.py::test_it_exceeds_its_window_of_bytes_by_one_message_at_most_and_always_gets_one
25 sdk/producing/test_when_full.py::test_a_full_destination_does_not_slow_others_of_the_same_client
26 sdk/consuming/test_windows.py::test_who_does_nothing_with_what_it_holds_gives_it_back_when_others_wait
26 sdk/producing/test_names.py::test_nothing_is_spelled_zero
26 policy/documents/test_read.py::test_bad_input_is_told_with_its_place_and_the_accepted_form
27 lua/promises/test_p6_hand_over.py::test_freed_room_wakes_only_those_that_it_admits
27 lua/promises/test_p6_hand_over.py::test_a_message_wakes_as_many_consumers_as_it_feeds
28 sdk/producing/test_producer.py::test_a_kibibyte_message_costs_at_most_a_fiftieth_of_a_call
29 lua/promises/test_p7_fairness.py::test_equals_get_equal_shares
29 lua/promises/test_p7_fairness.py::test_weights_are_kept_within_three_percent
29 lua/promises/test_p7_fairness.py::test_shares_are_those_of_the_oracle
30 deadlock/test_links.py::test_links_in_a_ring_with_all_queues_full
30 conformance/test_activemq_producers.py::test_c01_each_producer_of_a_shared_connection_is_controlled_by_itself
31 lua/promises/test_oom.py::test_an_operator_can_purge_change_repair_and_delete_in_a_full_redis
31 sdk/namespace/test_pools.py::test_at_full_usage_an_operator_lists_raises_and_purges
32 policy/applied/test_live_changes.py::test_a_sender_that_is_blocked
32 policy/applied/test_live_changes.py::test_a_sender_that_is_free
32 policy/applied/test_live_changes.py::test_a_gate_that_is_blocked
32 policy/applied/test_live_changes.py::test_a_bucket_that_makes_wait
32 sdk/credit/test_rules.py::test_who_waits_for_the_rate_is_told_why
33 lua/promises/test_p8_send_rates.py::test_a_changed_rate_keeps_what_is_left_and_the_same_rate_changes_nothing
33 lua/promises/test_p8_rates.py::test_tokens_left_or_owed_survive_a_change_of_rate
34 lua/promises/test_p1_no_overshoot.py::test_a_lowered_limit_grants_nothing_until_there_is_room_below_it
34 sdk/consuming/test_consumer.py::test_a_window_lowered_below_what_is_held_delivers_nothing_until_enough_is_settled
35 policy/applied/test_live_pools.py::test_a_limit_for_each_or_shared_by_all
35 policy/documents/test_resolve.py::test_without_rules_everything_is_at_its_default
36 sdk/namespace/test_pools.py::test_a_tenant_with_many_topics_stays_within_its_limit
37 lua/promises/test_cluster.py::test_every_script_keeps_to_its_declared_keys_in_one_slot
37 lua/promises/test_stateful.py::test_the_scripts_do_what_the_model_does_on_a_cluster
37 sdk/session/test_cluster.py::test_messages_go_through_on_every_master
38 sdk/session/test_outages.py::test_on_loss_closed_admits_nothing_once_redis_is_lost
38 sdk/session/test_outages.py::test_on_loss_last_lease_spends_what_is_held_until_the_lease_ends_and_no_longer
39 lua/destinations/test_slow.py::test_who_has_nothing_to_do_is_never_slow
39 lua/destinations/test_slow.py::test_a_consumer_that_takes_one_at_a_time_is_judged_by_the_rate_alone
39 lua/destinations/test_slow.py::test_on_a_topic_each_subscription_is_judged_by_what_waits_for_it
39 sdk/consuming/test_slow.py::test_an_idle_consumer_is_never_detached
"""
"""By number, `<file>::<name>` below `tests/`; beside those named after a problem in `test_problems.py`."""
