-- Removes the dead rows of earlier rounds on both sides, so that no round pays for another. It is not measured.
-- Takes: nothing
-- Gives: nothing
VACUUM dialoq.queue_message, dialoq.ready_group, dialoq.conversation_endpoint, dialoq.send_counter, dialoq_bench_message;
