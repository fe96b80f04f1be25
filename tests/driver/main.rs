//! The driver of PostgreSQL by itself: values there and back, what errors mean, and what becomes of a link whose caller goes
//! away. What others can do to it: garbage, damaged rows, locks, sessions. Installations of earlier versions. Batches, and verbs
//! on connections of the user's own, on both servers; the rest of SQL Server's driver is tried beside it.

mod batches;
mod batches_mssql;
mod changes;
mod changes_mssql;
mod claims;
mod damaged;
mod databases;
mod dialog_batches;
mod enlisting;
mod enlisting_mssql;
mod errors;
mod garbage;
mod garbage_mssql;
mod held;
mod hostile_mssql;
mod jobs;
mod jobs_keys;
mod jobs_locks;
mod jobs_locks_mssql;
mod jobs_mssql;
mod jobs_strict;
mod jobs_together;
mod kept_texts;
mod late_counts;
mod leaving;
mod measured;
mod moved;
mod old_snapshots;
mod places;
mod plans;
mod refused_controls;
mod restored;
mod rights_mssql;
mod rollbacks;
mod rollbacks_mssql;
mod schedules;
mod schedules_mssql;
mod server_log;
mod session;
mod stage;
mod strangers;
mod tls;
mod upgrading;
mod values;

#[path = "../bad_days/proxy.rs"]
mod proxy;
#[path = "../servers/mod.rs"]
mod servers;

#[path = "../../examples/enlist_postgres.rs"]
#[allow(dead_code, reason = "its `main` is for users")]
mod example;

use servers::{OnStores, Store};
use std::process::ExitCode;

macro_rules! tests {
    ($($store:ident $module:ident: $($name:ident)*;)*) => {
        &[$($(OnStores {
            name: concat!(stringify!($module), "::", stringify!($name)),
            stores: &[Store::$store],
            run: $module::$name,
        }),*),*]
    };
}

fn main() -> ExitCode {
    servers::run(tests! {
        Postgres values: arguments_arrive_in_the_declared_types rows_are_a_column_of_each users_values_fit_every_type
            users_see_ids_and_times_as_text a_changed_table_is_read_again
            a_change_between_transactions_fails_no_statement transactions_are_not_the_users
            a_query_changes_nothing;
        Postgres errors: numbers_of_ours_come_through the_users_own_sql_is_60022 deadlocks_are_1205 a_failed_transaction_is_not_committed
            savepoints_keep_earlier_work a_missing_schema_is_60035 a_function_replaced_under_its_call_is_1205
            logins_are_60034 a_server_that_is_not_there_is_60030 the_next_host_is_asked_after_a_silent_one a_unit_under_way_is_waited_for a_runtime_without_timers_is_named
            a_broker_whose_runtime_has_ended_says_so calls_under_way_as_the_runtime_ends_get_an_answer
            a_verb_of_plain_sql_in_a_transaction_that_only_reads_has_its_number plain_sql_refuses_declarations_and_no_words
            a_constraint_put_off_fails_the_commit an_exhausted_pool_is_60032
            a_verb_stopped_by_a_limit_may_be_tried_again codes_do_not_depend_on_the_language_of_the_server;
        Postgres leaving: a_transaction_left_open_is_rolled_back a_call_left_waiting_is_ended_and_its_locks_are_free
            locks_of_the_session_do_not_go_back_to_the_pool the_error_of_a_lost_connection_states_the_outcome
            a_connection_lost_while_idle_is_replaced a_notice_reaches_a_listener a_lost_listener_is_reported
            durability_and_the_search_path_are_set
            what_is_sent_to_a_session_that_was_ended_while_idle_has_not_run a_receive_given_up_before_it_has_a_connection_takes_nothing
            calls_whose_callers_leave_while_they_wait_for_a_group_are_not_done;
        Postgres enlisting: verbs_commit_with_the_users_writes a_refusal_leaves_the_users_transaction_as_it_was
            without_a_transaction_each_verb_commits a_failed_transaction_takes_no_verbs other_processes_are_notified_of_an_enlisted_send
            a_session_may_send_its_notices_itself
            a_verb_whose_answer_is_lost_is_unknown_only_without_a_transaction
            a_verb_on_a_connection_that_has_ended_has_not_happened
            messages_are_back_after_a_rollback new_definitions_are_noticed receivers_lock_only_the_groups_they_take
            the_example_runs_and_leaves_nothing_behind verbs_of_the_users_own_sql_wake_receivers
            verbs_are_prepared_once_on_the_users_connection statements_that_a_connection_has_lost_are_prepared_again
            a_verb_that_cannot_be_prepared_leaves_the_users_transaction_as_it_was;
        Postgres refused_controls: a_unit_whose_begin_is_refused_has_not_happened a_verb_whose_begin_is_refused_has_not_happened
            a_statement_whose_begin_is_refused_is_not_repeated a_refused_savepoint_ends_the_transaction
            a_refused_commit_leaves_no_transaction_to_the_next_caller
            a_verb_whose_savepoint_is_refused_without_a_transaction_has_happened;
        Postgres batches: a_batch_serves_usual_and_unusual_groups
           a_list_on_one_conversation_arrives_whole_and_in_order
           a_batch_begins_where_the_last_one_began
            a_batch_numbers_its_messages_and_refuses_one_by_one a_batch_is_retried_after_a_send_between_its_read_and_its_lock
            a_row_that_a_sender_keeps_hides_no_other_group a_batch_passes_over_no_older_message_of_a_conversation
            a_batch_passes_over_no_message_that_came_back a_lone_receive_takes_no_group_for_older_than_it_is many_messages_come_in_order_whatever_a_session_has_switched_off
            a_batch_keeps_the_rollbacks_of_a_group_that_it_passes_over a_claim_of_no_message_is_left_to_receive
            a_batch_ends_although_the_clock_is_set_back_meanwhile;
        Postgres moved: a_message_under_way_to_a_conversation_that_moves_comes_before_the_next
            a_message_under_way_to_a_conversation_that_moves_is_seen_by_polls_and_notes
            a_conversation_that_moves_again_waits_for_its_last_recheck a_message_under_way_to_a_service_that_moves_outlives_its_queue
            a_message_of_a_service_that_moves_outlives_its_queue_in_a_turn_of_the_generations
            a_dropped_queue_leaves_no_row_of_a_message_under_way
            a_message_that_came_to_a_side_as_it_ended_takes_no_place_of_another
            bounds_of_the_level_are_refused_where_they_choose_nothing
            a_message_under_way_waits_for_no_other_transaction a_message_under_way_is_found_behind_many_requests
            a_message_under_way_to_a_service_that_moves_waits_for_no_other_transaction
            a_message_under_way_is_found_by_an_idle_process
            a_conversation_of_a_dropped_service_is_not_found a_held_group_without_messages_counts_for_nothing
            a_recheck_is_done_although_the_clock_was_set_back a_tick_reads_a_part_of_very_many_requests;
        Postgres changes: a_change_that_waits_for_one_group_holds_no_other
            an_error_for_all_conversations_reaches_a_side_that_is_being_made a_queue_is_dropped_beside_an_open_send
            a_message_to_a_side_that_is_erased_meanwhile_does_not_stay a_conversation_gets_one_error_however_many_are_raised
            no_kept_message_outlives_its_conversation a_hold_ends_although_the_clock_is_set_back;
        Postgres dialog_batches: a_batch_begins_what_is_plain_and_leaves_the_rest
            a_batch_ends_what_is_plain_and_leaves_the_rest first_messages_go_among_others_in_a_batch
            what_is_left_of_a_batch_is_done_alone a_first_message_is_not_sent_under_the_lock_of_another_group;
        Postgres claims: a_claim_that_may_grow_older_than_any_clock_shows_is_committed
            a_receiver_alone_opens_a_transaction_and_others_beside_it_claim
            a_receiver_alone_waits_for_no_connection a_queue_whose_rollbacks_do_not_count_is_claimed_from_at_once
            receivers_that_come_at_once_are_not_each_alone a_claim_holds_its_group_without_a_transaction_of_the_server
            a_transaction_that_does_more_takes_the_lock_before_those_that_wait
            a_lost_session_ends_its_claims_and_loses_no_message an_old_claim_becomes_a_transaction_of_the_server
            the_rollback_of_a_claim_counts what_happens_to_the_queue_after_a_claim_does_not_change_its_commit
            a_claim_of_many_messages_takes_them_all_or_leaves_them_to_receive
            large_messages_are_left_to_receive receivers_beside_sessions_that_claim_and_hang_go_on
            transactions_that_do_more_than_a_claim_of_a_session_that_hangs_leave_the_pool
            an_old_claim_commits_beside_a_note_that_hangs
            a_process_claims_so_many_messages_and_receive_serves_more
            many_callers_of_two_processes_receive_each_message_once
            a_claim_that_grows_old_takes_no_connection_from_its_own_caller
            claims_that_grow_old_leave_a_connection_to_others
            a_dropped_transaction_does_not_wait_for_the_connection_of_its_claim
            a_claim_goes_on_while_those_that_wait_for_it_hold_every_connection
            a_session_that_comes_while_a_claim_is_made_does_not_stand_in_its_way
            a_claim_that_fails_in_the_server_holds_no_group
            a_stranger_that_shares_the_lock_of_a_claim_is_not_waited_for_without_end;
        Postgres databases: implicit_casts_to_text_stop_no_verb a_database_of_another_encoding_is_refused
            an_opening_for_reading_changes_nothing_whatever_its_url_says;
        Postgres plans: no_plan_depends_on_statistics no_plan_depends_on_the_statistics_of_one_job a_long_outbox_is_delivered_in_proportion_to_its_length;
        Postgres old_snapshots: no_verb_walks_over_the_rows_that_an_old_snapshot_keeps
            a_generation_ends_after_every_transaction_that_may_use_it
            a_recheck_waits_for_the_transaction_with_the_latest_number
            a_receive_that_reads_many_dead_rows_of_a_group_asks_for_a_new_generation
            a_clock_that_is_set_back_in_a_turn_stops_no_tick a_transaction_with_a_fixed_snapshot_changes_no_claim_index;
        Postgres garbage: no_argument_of_a_user_stops_another_caller no_argument_of_an_administrator_fails_without_a_code;
        Postgres damaged: a_damaged_row_breaks_its_own_conversation_only both_sides_get_an_error_for_a_damaged_conversation
            a_damaged_conversation_that_another_holds_is_left_for_later;
        Postgres server_log: transactions_leave_no_line_in_it a_broker_that_opens_works_and_closes_leaves_no_line_in_it
            no_command_leaves_a_lost_session_in_it;
        Postgres session: the_pool_gives_sessions_as_new statements_that_change_a_session_are_refused the_users_own_sql_has_a_limit
            a_statement_runs_although_its_limit_is_refused
            copy_rows_of_a_statement_are_refused_before_it_runs a_procedure_that_commits_and_fails_runs_once
            a_procedure_that_commits_and_meets_a_deadlock_runs_once
            closing_stops_a_statement_without_end no_text_holds_the_password the_users_own_limit_stays
            a_statement_cancelled_by_another_session_is_reported a_session_whose_statement_was_stopped_is_not_used_again
            the_default_role_of_a_login_stays a_session_that_cannot_be_renewed_is_closed
            closing_does_not_wait_for_a_control_call_of_a_transaction
            closing_ends_the_sessions_of_open_transactions the_isolation_that_a_database_sets_reaches_no_verb
            the_server_notices_a_lost_host_soon a_limit_on_idle_sessions_ends_none_that_serves_no_caller
            a_limit_on_transactions_ends_none_that_serves_no_caller
            a_session_that_began_while_the_server_only_read_serves_one_caller;
        Postgres rollbacks: a_savepoint_that_is_undone_is_no_rollback_while_its_transaction_is_open
            a_restored_copy_forgets_transactions_of_another_server
            an_unfinished_definition_does_not_stop_receivers a_definition_beside_a_transaction_that_keeps_their_lock_names_it
            a_queue_is_turned_off_without_the_locks_of_its_conversations
            a_notification_that_another_session_holds_stops_no_rollback_and_no_definition
            a_receive_that_takes_nothing_forgets_no_rollbacks
            a_rollback_counts_once_although_another_session_holds_one_of_its_groups
            losses_of_one_group_count_each_however_late_they_are_found a_lost_transaction_counts_for_each_of_its_queues
            rollbacks_that_are_left_to_tick_are_no_losses
            rollbacks_that_are_counted_at_once_turn_a_queue_off a_dropped_queue_leaves_no_rollbacks
            rollbacks_count_without_a_note_made_at_once
            a_commit_that_a_deferred_constraint_refuses_is_a_rollback a_refused_commit_counts_before_others_receive;
        Postgres late_counts: a_rollback_with_a_statement_under_way_counts_before_others_receive
            a_late_count_of_a_message_that_was_handled_since_is_none a_late_count_of_a_service_with_another_queue_is_none
            a_redriven_letter_has_no_late_counts a_redriven_letter_has_no_late_counts_of_its_group
            a_group_out_of_quarantine_has_no_late_counts
            a_count_takes_those_before_it_at_the_message_along
            a_count_takes_those_before_it_at_the_message_along_into_quarantine
            late_counts_are_the_end_of_their_own_message_only
            a_count_that_waits_is_checked;
        Postgres restored: a_watch_of_the_status_goes_on_when_the_database_can_be_reached_again
            definitions_of_an_earlier_version_are_read_again rechecks_that_another_server_has_asked_for_are_made
            connections_that_only_read_are_replaced definitions_are_read_while_transactions_hold_every_connection
            a_connection_that_polled_while_a_server_only_read_is_replaced
            a_publication_of_all_tables_stops_no_verb
            a_copy_without_the_values_of_its_sequences_keeps_its_order a_copy_on_another_server_gets_its_roles_back
            a_copy_without_privileges_says_who_grants_them a_copy_without_comments_keeps_what_is_the_users
            transactions_of_a_database_that_only_reads_write_nothing
            other_definitions_of_the_same_version_are_read_after_a_lost_connection
            definitions_after_a_restore_have_versions_of_their_own;
        Postgres strangers: overloads_of_a_stranger_are_never_called
            operators_of_a_stranger_before_those_of_the_server_are_never_called a_schema_of_another_owner_is_refused
            a_function_that_another_role_left_is_refused every_granted_function_fixes_its_search_path
            a_queue_is_turned_off_by_receiving_only
            locks_of_a_stranger_stop_no_reader_and_no_sender_for_ever
            a_batch_that_stalls_before_it_writes_leaves_nothing_behind plain_sql_names_queues_as_clients_do
            a_wait_for_a_group_lasts_longer_than_the_search_for_deadlocks
            a_member_by_set_role_is_no_stranger a_login_with_rights_on_single_verbs_is_no_stranger the_right_to_connect_keeps_a_member_out_of_another_database
            default_privileges_give_no_right_on_the_broker a_login_that_may_write_all_tables_is_named what_a_role_left_on_the_tables_is_refused;
        Postgres kept_texts: literals_are_those_of_each_caller a_column_that_was_altered_gets_whole_values;
        Postgres places: readers_above_a_lowered_maximum_count;
        Postgres held: a_refused_redrive_keeps_no_group a_large_body_of_plain_sql_is_checked_before_the_lock rows_of_readers_stop_no_query_and_no_reader rows_of_a_dead_process_do_not_stop_tick
            rows_of_thousands_of_dead_processes_do_not_stop_tick
            an_attempt_that_another_session_noted_first_does_no_harm
            tick_is_refused_in_a_transaction_that_has_written sends_that_wait_for_a_group_stop_no_sender_of_another
            a_member_that_frees_its_locks_stops_no_receive a_notification_whose_connection_hangs_goes_by_another
            the_prepared_transaction_that_holds_a_group_is_named;
        Postgres jobs: a_job_of_an_enlisted_transaction_comes_back_uncounted
            an_enlisted_transaction_reports_on_leased_jobs_only
            a_take_within_a_longer_statement_keeps_others_from_nothing a_take_of_large_jobs_holds_up_no_other_queue
            a_reader_of_another_process_is_woken_by_an_enlisted_push plain_sql_has_the_same_verbs
            a_queue_of_many_jobs_is_dropped
            the_attempt_of_a_dead_process_has_failed_and_its_transaction_does_not_commit
            a_process_that_lost_the_connection_of_its_presence_keeps_its_jobs
            a_transaction_whose_connection_is_lost_is_a_failed_attempt a_claim_whose_answer_was_lost_goes_back
            jobs_pushed_into_a_queue_while_it_is_dropped_go_too
            a_push_that_began_while_its_queue_was_dropped_is_waited_for the_history_keeps_to_its_bounds
            rows_of_a_clock_that_was_ahead_keep_no_older_ones_in_a_history a_state_that_was_seen_counts_without_a_token
            a_job_that_waits_for_a_connection_has_no_failed_attempt
            a_lease_is_prolonged_while_transactions_hold_every_connection
            a_lease_is_prolonged_while_its_report_waits_for_a_connection timers_that_are_due_leave_room_for_jobs;
        Postgres schedules: a_database_returns_to_the_time_of_its_server many_processes_fire_each_time_once
            a_step_is_taken_from_the_row_as_it_was_read an_altered_schedule_repeats_no_time
            a_process_that_leaves_takes_no_time_with_it a_schedule_that_cannot_fire_stops_no_other
            a_step_pushes_the_body_of_its_schedule a_queue_of_a_schedule_is_not_removed an_opening_for_reading_leaves_what_is_due
            a_schedule_counts_from_a_clock_that_was_set_back an_opening_that_is_given_up_leaves_no_session;
        Postgres jobs_keys: a_search_by_key_gives_the_job_that_a_search_in_order_gives
            a_search_by_key_does_not_read_the_jobs_of_full_keys
            a_job_behind_those_of_very_many_full_keys_is_found a_job_behind_many_of_other_types_is_found
            jobs_of_a_queue_that_limits_its_keys_later_are_marked;
        Postgres jobs_strict: a_take_by_type_gives_no_job_before_the_first_of_its_key a_take_by_type_finds_the_second_job_of_a_key_however_far_it_is
            a_take_by_type_reads_each_key_once a_take_passes_over_many_lines_that_wait
            a_row_that_is_locked_for_a_moment_lets_no_later_job_pass a_row_that_is_locked_has_one_of_the_places_of_its_key the_order_holds_beside_refused_reports
            a_take_does_not_read_the_backlog_of_a_key_that_is_held_up
            a_take_of_many_jobs_reads_each_a_few_times a_take_of_many_jobs_keeps_the_limits
            no_reader_of_many_goes_away_empty_while_jobs_are_ready
            a_take_beside_a_transaction_that_stays_open_is_refused_or_waits a_take_that_gave_nothing_holds_up_no_other;
        Postgres jobs_locks: locks_of_a_stranger_stop_no_work_queue a_stranger_keeps_no_job_of_a_dead_process
            the_first_take_after_a_fall_of_the_server_holds_up_no_other a_member_that_calls_itself_a_client_holds_up_no_take a_worker_reports_again_while_another_session_holds_the_row
            a_worker_reports_again_while_the_disk_is_full
            a_claim_that_commits_after_its_transaction_goes_back a_take_that_stays_open_keeps_no_job_of_another
            a_unique_key_of_a_job_that_is_there_is_answered_at_once a_dropped_queue_of_a_restored_copy_is_cleared
            a_push_that_comes_too_late_keeps_no_job_of_its_key
            a_claim_tells_of_the_jobs_that_it_gives_back a_lower_bound_of_a_quiet_history_cuts_it
            one_damaged_job_of_a_dead_process_keeps_no_other what_has_gone_refuses_no_report
            a_take_that_waits_for_its_turn_begins_with_it a_take_that_has_waited_goes_by_the_settings_of_now
            a_queue_is_dropped_beside_an_open_push_of_a_unique_key
            a_take_of_a_transaction_that_waits_in_line_holds_up_no_other;
        Postgres jobs_together: each_caller_gets_its_own_answer reports_that_take_the_next_job_go_together a_job_that_comes_back_is_taken_while_batches_go_on
            transactions_that_take_together_end_by_themselves
            jobs_for_a_caller_that_has_left_go_back a_report_waits_for_a_take_that_locks_its_row_in_passing
            reports_that_wait_for_a_take_go_together_after_it a_batch_with_unusable_arguments_changes_nothing;
        Postgres upgrading: rows_of_version_1_are_kept a_clock_of_tests_out_of_range_is_brought_into_it
            rights_on_single_functions_and_views_survive
            logic_alone_is_refused_by_tables_of_another_version an_upgrade_that_waits_for_a_reader_stops_no_other_session;
        Postgres measured: workloads_run_with_their_rivals_and_leave_nothing;
        Postgres tls: the_url_chooses_how_much_tls_verifies;
        Mssql enlisting_mssql: verbs_commit_with_the_users_writes a_refusal_leaves_the_users_transaction_as_it_was
            the_users_isolation_level_blocks_no_other_session a_verb_leaves_the_settings_of_the_users_session;
        Mssql batches_mssql: a_batch_begins_where_the_last_one_began
            a_row_that_leads_to_nothing_is_removed a_row_that_a_sender_keeps_hides_no_other_group
            sends_into_a_held_group_add_one_row;
        Mssql hostile_mssql: an_invalid_verdict_is_refused_at_once
            a_row_that_fails_keeps_nothing_else_from_being_done ids_that_are_in_use_are_refused
            a_row_whose_failure_cannot_be_noted_keeps_nothing_else_from_being_done
            session_settings_do_not_affect_verbs tick_is_not_called_in_a_transaction
            rollbacks_that_are_made_up_are_not_counted names_are_compared_to_their_last_space
            a_schema_of_another_owner_is_not_trusted a_transaction_that_can_only_be_rolled_back_takes_no_verb
            a_process_writes_its_own_rows_only definitions_in_a_row_are_rechecked_once
            a_message_sent_before_its_service_moves_is_received
            a_definition_that_waits_for_a_row_stops_no_other
            a_poll_that_waits_for_a_lock_stops_no_transaction
            definitions_that_wait_for_a_lock_stop_no_transaction a_database_that_is_not_there_is_named
            a_verb_that_its_client_stops_leaves_no_transaction;
        Mssql changes_mssql: a_change_that_waits_for_one_group_holds_no_other
            an_error_for_all_conversations_reaches_a_side_that_is_being_made
            a_message_under_way_to_a_service_that_moves_outlives_its_queue a_message_under_way_waits_for_no_other_transaction
            a_conversation_of_a_dropped_service_is_not_found a_recheck_is_done_although_the_clock_was_set_back
            a_tick_reads_a_part_of_very_many_requests a_message_to_a_side_that_is_erased_meanwhile_does_not_stay;
        Mssql rollbacks_mssql: the_rollback_of_a_group_that_another_receiver_has_counts_when_that_has_ended
            rollbacks_that_are_counted_at_once_turn_a_queue_off a_rollback_that_tick_cannot_count_is_counted_later
            a_count_takes_those_before_it_at_the_message_along
            a_repeated_step_of_tick_waits_as_before;
        Mssql jobs_mssql: a_job_of_an_enlisted_transaction_comes_back_uncounted a_job_that_a_transaction_cancels_is_passed_over
            a_state_that_was_seen_counts_without_a_token plain_sql_has_the_same_verbs the_attempt_of_a_dead_process_has_failed_and_its_transaction_does_not_commit
            a_claim_whose_answer_was_lost_goes_back jobs_pushed_into_a_queue_while_it_is_dropped_go_too
            the_history_keeps_to_its_bounds a_completion_takes_the_next_job_along_or_is_refused_with_it
            timers_that_are_due_leave_room_for_jobs;
        Mssql jobs_locks_mssql: a_unique_key_of_a_job_that_is_there_is_answered_at_once
            a_claim_tells_of_the_jobs_that_it_gives_back a_lower_bound_of_a_quiet_history_cuts_it
            one_damaged_job_of_a_dead_process_keeps_no_other no_job_is_dead_because_the_server_lacks_something
            a_lasting_shortage_of_one_job_keeps_nothing_else_from_being_done
            a_job_that_another_session_changes_is_not_overtaken a_report_does_not_wait_for_a_push_of_its_name ticks_at_once_refuse_none_of_each_other
            a_take_that_has_waited_goes_by_the_settings_of_now a_refusal_with_xact_abort_ends_the_transaction;
        Mssql places: readers_above_a_lowered_maximum_count;
        Mssql schedules: a_database_returns_to_the_time_of_its_server many_processes_fire_each_time_once a_process_that_leaves_takes_no_time_with_it;
        Mssql schedules_mssql: a_step_is_taken_from_the_row_as_it_was_read a_step_that_another_session_takes_is_not_waited_for
            a_step_pushes_the_body_of_its_schedule a_queue_of_a_schedule_is_not_removed;
        Mssql rights_mssql: members_execute_documented_routines_and_touch_no_table the_printed_installation_runs_by_hand
            an_upgrade_gives_up_while_a_transaction_stays_open;
        Mssql measured: workloads_run_with_their_rivals_and_leave_nothing;
        Mssql garbage_mssql: no_argument_stops_another_conversation;
    })
}
